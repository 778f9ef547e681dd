#include "ops/kernels/softmax.h"

#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"
#include "ops/cpu/sum_pieces.h"
#include "ops/math.h"

namespace pando::PANDO_ISA {
namespace {

// Rows per task, for about 8 Ki elements.
int64_t RowGrain(int64_t cols) { return 1 + 8192 / (cols + 1); }

template <typename T, typename C = ComputeType<T>>
void SoftmaxRow(const T* x, int64_t cols, T* y) {
  C max = ToFloat(x[0]);
#pragma omp simd reduction(max : max)
  for (int64_t c = 0; c < cols; ++c) {
    const C v = ToFloat(x[c]);
    max = v > max ? v : max;
  }
  const C sum = SumInPieces<C>(0, cols, [x, max](int64_t c) { return Exp(ToFloat(x[c]) - max); });
  const C inverse = C(1) / sum;
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) y[c] = RoundTo<T>(Exp(ToFloat(x[c]) - max) * inverse);
}

void Forward(const SoftmaxForwardArgs& args, void* /*stream*/) {
  if (args.cols == 0) return;
  Dispatch<float, BFloat16, Float16, double>("softmax", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const int64_t cols = args.cols;
    ParallelFor(args.rows, RowGrain(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        SoftmaxRow(static_cast<const T*>(args.x) + r * cols, cols,
                   static_cast<T*>(args.y) + r * cols);
      }
    });
  });
}

template <typename T, typename C = ComputeType<T>>
void GradientRow(const T* y, const T* dy, int64_t cols, T* dx) {
  const C dot =
      SumInPieces<C>(0, cols, [y, dy](int64_t c) { return C{ToFloat(y[c])} * ToFloat(dy[c]); });
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) {
    dx[c] = RoundTo<T>(C{ToFloat(y[c])} * (ToFloat(dy[c]) - dot));
  }
}

void Backward(const SoftmaxBackwardArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("softmax backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const int64_t cols = args.cols;
    ParallelFor(args.rows, RowGrain(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        GradientRow(static_cast<const T*>(args.y) + r * cols,
                    static_cast<const T*>(args.dy) + r * cols, cols,
                    static_cast<T*>(args.dx) + r * cols);
      }
    });
  });
}

}  // namespace

extern const SoftmaxKernels kSoftmax;
const SoftmaxKernels kSoftmax = {.forward = Forward, .backward = Backward};

}  // namespace pando::PANDO_ISA
