#include "ops/kernels/column_sums.h"

#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"
#include "ops/cpu/column_partials.h"

namespace pando::PANDO_ISA {
namespace {

template <typename T, typename C = ComputeType<T>>
void AddRow(const T* x, int64_t cols, C* sums) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) sums[c] += ToFloat(x[c]);
}

template <typename T, typename C = ComputeType<T>>
void RunTyped(const ColumnSumsArgs& args) {
  const int64_t cols = args.cols;
  const int64_t chunk = PartialRows(args.rows);
  C* partials = static_cast<C*>(args.scratch);
  ParallelFor(args.rows, chunk, [&](int64_t begin, int64_t end) {
    C* sums = partials + begin / chunk * cols;
    for (int64_t c = 0; c < cols; ++c) sums[c] = C(0);
    for (int64_t r = begin; r < end; ++r) {
      AddRow(static_cast<const T*>(args.x) + r * cols, cols, sums);
    }
  });
  AddPartials(partials, PartialCount(args.rows), cols, cols, args.accumulate,
              static_cast<C*>(args.sums));
}

void Run(const ColumnSumsArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("column_sums", args.dtype,
                                             [&](auto tag) { RunTyped<decltype(tag)>(args); });
}

int64_t Scratch(int64_t rows, int64_t cols, DType dtype) {
  return PartialCount(rows) * cols * (dtype == DType::kF64 ? 8 : 4);
}

}  // namespace

extern const ColumnSumsKernels kColumnSums;
const ColumnSumsKernels kColumnSums = {.run = Run, .scratch = Scratch};

}  // namespace pando::PANDO_ISA
