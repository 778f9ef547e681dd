#include "ops/cuda/attention_check.h"

#include <limits>

#include "engine/error.h"

namespace pando {

void CheckAttentionShape(const AttentionShape& s) {
  Require(s.head_dim <= 256, "attention: heads of ", s.head_dim,
          " elements; CUDA kernels take at most 256");
  Require(s.key_length <= std::numeric_limits<int32_t>::max(), "attention: ", s.key_length,
          " keys; CUDA kernels take at most 2^31 - 1");
}

}  // namespace pando
