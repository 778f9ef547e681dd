#include "ops/kernels/gelu.h"

#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"
#include "ops/cpu/column_partials.h"
#include "ops/math.h"

namespace pando::PANDO_ISA {
namespace {

// Rows per task, for about 32 Ki elements.
int64_t RowGrain(int64_t cols) { return 1 + 32768 / (cols + 1); }

template <typename T>
void GeluRow(const T* x, int64_t cols, T* y) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) y[c] = RoundTo<T>(Gelu(ToFloat(x[c])));
}

template <typename T, typename C = ComputeType<T>>
void AddBiasRow(const T* x, const T* bias, int64_t cols, T* sum) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) sum[c] = RoundTo<T>(C{ToFloat(x[c])} + ToFloat(bias[c]));
}

template <typename T>
void CopyRow(const T* x, int64_t cols, T* y) {
  if (x != y && cols > 0) __builtin_memcpy(y, x, static_cast<size_t>(cols) * sizeof(T));
}

// The sum is kept in pre, or else goes through y, a row at a time: it stays in the cache.
template <typename T>
void ForwardTyped(const GeluForwardArgs& args) {
  const int64_t cols = args.cols;
  const T* bias = static_cast<const T*>(args.bias);
  ParallelFor(args.rows, RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = static_cast<const T*>(args.x) + r * cols;
      T* y = static_cast<T*>(args.y) + r * cols;
      T* pre = args.pre == nullptr ? nullptr : static_cast<T*>(args.pre) + r * cols;
      if (bias != nullptr) {
        T* sum = pre == nullptr ? y : pre;
        AddBiasRow(x, bias, cols, sum);
        x = sum;
      } else if (pre != nullptr) {
        CopyRow(x, cols, pre);
      }
      GeluRow(x, cols, y);
    }
  });
}

void Forward(const GeluForwardArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("gelu", args.dtype,
                                             [&](auto tag) { ForwardTyped<decltype(tag)>(args); });
}

template <typename T, typename C = ComputeType<T>>
void GradientRow(const T* pre, const T* dy, int64_t cols, T* dx) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) {
    dx[c] = RoundTo<T>(C{ToFloat(dy[c])} * GeluDerivative(ToFloat(pre[c])));
  }
}

template <typename T, typename C = ComputeType<T>>
void GradientRowSumming(const T* pre, const T* dy, int64_t cols, T* dx, C* dbias) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) {
    const C d = C{ToFloat(dy[c])} * GeluDerivative(ToFloat(pre[c]));
    dx[c] = RoundTo<T>(d);
    dbias[c] += d;
  }
}

template <typename T>
void InputGradient(const GeluBackwardArgs& args) {
  const int64_t cols = args.cols;
  ParallelFor(args.rows, RowGrain(cols), [&](int64_t begin, int64_t end) {
    const int64_t from = begin * cols;
    GradientRow(static_cast<const T*>(args.pre) + from, static_cast<const T*>(args.dy) + from,
                (end - begin) * cols, static_cast<T*>(args.dx) + from);
  });
}

template <typename T, typename C = ComputeType<T>>
void InputAndBiasGradient(const GeluBackwardArgs& args) {
  const int64_t cols = args.cols;
  const int64_t chunk = PartialRows(args.rows);
  C* partials = static_cast<C*>(args.scratch);
  ParallelFor(args.rows, chunk, [&](int64_t begin, int64_t end) {
    C* dbias = partials + begin / chunk * cols;
    for (int64_t c = 0; c < cols; ++c) dbias[c] = C(0);
    for (int64_t r = begin; r < end; ++r) {
      GradientRowSumming(static_cast<const T*>(args.pre) + r * cols,
                         static_cast<const T*>(args.dy) + r * cols, cols,
                         static_cast<T*>(args.dx) + r * cols, dbias);
    }
  });
  AddPartials(partials, PartialCount(args.rows), cols, cols, args.accumulate,
              static_cast<C*>(args.dbias));
}

void Backward(const GeluBackwardArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("gelu backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    args.dbias == nullptr ? InputGradient<T>(args) : InputAndBiasGradient<T>(args);
  });
}

int64_t BackwardScratch(int64_t rows, int64_t cols, DType dtype) {
  return PartialCount(rows) * cols * (dtype == DType::kF64 ? 8 : 4);
}

}  // namespace

extern const GeluKernels kGelu;
const GeluKernels kGelu = {
    .forward = Forward, .backward = Backward, .backward_scratch = BackwardScratch};

}  // namespace pando::PANDO_ISA
