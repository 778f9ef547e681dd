#include "ops/cuda/attention_check.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>

#include "engine/cuda/check.h"
#include "engine/error.h"
#include "ops/cuda/cublaslt.h"

namespace pando {

void CheckAttentionShape(const AttentionShape& s) {
  Require(s.head_dim <= 256, "attention: heads of ", s.head_dim,
          " elements; CUDA kernels take at most 256");
  int device = 0;
  CheckCuda(cudaGetDevice(&device), "asking for the device");
  const bool ampere = ComputeCapabilityMajor(device) >= 8;
  Require(ampere || s.dtype != DType::kBF16,
          "attention: bf16 needs compute capability 8.0; use f16 or f32");
  // Tiles of f32 rows that long fill more shared memory than older GPUs have.
  Require(ampere || s.dtype != DType::kF32 || s.head_dim <= 128, "attention: heads of ", s.head_dim,
          " elements in f32 need compute capability 8.0");
  // Positions within a sequence are ints, and may pass its end by a tile; so are numbers of blocks.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
  Require(s.key_length <= kMost && s.query_length <= kMost, "attention: ", s.query_length,
          " queries, ", s.key_length, " keys; CUDA kernels take at most ", kMost);
  const int64_t longest = std::max(s.key_length, s.query_length);
  Require(s.batch * s.query_heads * ((longest + 15) / 16) <= kMost, "attention: ", s.batch,
          " samples of ", s.query_heads, " heads and ", longest,
          " rows are more than a CUDA grid has blocks for");
}

}  // namespace pando
