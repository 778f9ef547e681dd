#include "ops/cpu/tiled_accumulate.h"

#include <algorithm>
#include <cstring>

#include "engine/cpu/parallel.h"
#include "engine/cpu/vector_kernels_cpu.h"
#include "ops/cpu/onednn_matmul.h"

namespace pando {
namespace {

// Rows of C at a time: by measurement, on one thread and on two.
constexpr int64_t kRows = 384;
// A block of C beyond this would not stay in the cache between being written and being added.
constexpr int64_t kBlockBytes = 8 << 20;
// A smaller C may well be in the cache.
constexpr int64_t kLeastBytes = 4 << 20;

int64_t RoundUp64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The parts of the scratch: columns of the stored A, side by side; a block of C; oneDNN's own.
struct Parts {
  int64_t panel;
  int64_t block;
  int64_t inner;
};

// The product of `rows` columns of the stored A, copied into a panel: oneDNN has its fast path for
// dense matrices only.
MatmulArgs BlockArgs(const MatmulArgs& args, int64_t rows) {
  MatmulArgs block = args;
  block.m = rows;
  block.lda = rows;
  block.ldc = args.n;
  block.accumulate = false;
  return block;
}

Parts PartsOf(const MatmulArgs& args) {
  const int64_t last = args.m % kRows == 0 ? kRows : args.m % kRows;
  return {.panel = RoundUp64(args.k * kRows * SizeOf(args.input_dtype)),
          .block = RoundUp64(kRows * args.n * SizeOf(args.output_dtype)),
          .inner = std::max(OneDnnScratchBytes(BlockArgs(args, kRows)),
                            OneDnnScratchBytes(BlockArgs(args, last)))};
}

void CopyPanel(const MatmulArgs& args, int64_t row, int64_t rows, BFloat16* panel) {
  constexpr int64_t kGrain = 32;
  const BFloat16* a = static_cast<const BFloat16*>(args.a) + row;
  ParallelFor(args.k, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      std::memcpy(panel + p * rows, a + p * args.lda, rows * sizeof(BFloat16));
    }
  });
}

}  // namespace

bool UsesTiledAccumulate(const MatmulArgs& args) {
  return args.accumulate && args.bias == nullptr && args.batch == 1 && args.transpose_a &&
         args.input_dtype == DType::kBF16 && args.output_dtype == DType::kF32 &&
         args.ldc == args.n && args.m > kRows && args.n * kRows * 4 <= kBlockBytes &&
         args.n * args.m * 4 >= kLeastBytes;
}

int64_t TiledAccumulateScratchBytes(const MatmulArgs& args) {
  const Parts parts = PartsOf(args);
  return parts.panel + parts.block + parts.inner;
}

void TiledAccumulate(const MatmulArgs& args) {
  const Parts parts = PartsOf(args);
  char* scratch = static_cast<char*>(args.scratch);
  BFloat16* panel = reinterpret_cast<BFloat16*>(scratch);
  float* c_block = reinterpret_cast<float*>(scratch + parts.panel);
  for (int64_t row = 0; row < args.m; row += kRows) {
    const int64_t rows = std::min(kRows, args.m - row);
    CopyPanel(args, row, rows, panel);
    MatmulArgs block = BlockArgs(args, rows);
    block.a = panel;
    block.c = c_block;
    block.scratch = scratch + parts.panel + parts.block;
    block.scratch_bytes = parts.inner;
    OneDnnMultiply(block);
    CpuVectorKernels().axpy({.y = static_cast<float*>(args.c) + row * args.n,
                             .y_dtype = DType::kF32,
                             .x = c_block,
                             .x_dtype = DType::kF32,
                             .n = rows * args.n,
                             .a = 1.0,
                             .factor = nullptr},
                            nullptr);
  }
}

}  // namespace pando
