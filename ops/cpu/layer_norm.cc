#include "ops/kernels/layer_norm.h"

#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"
#include "ops/cpu/column_partials.h"
#include "ops/cpu/sum_pieces.h"
#include "ops/math.h"

namespace pando::PANDO_ISA {
namespace {

// Rows per task: about 64 KiB of f32 at GPT-2's width.
constexpr int64_t kRowGrain = 16;

template <typename T, typename C = ComputeType<T>>
void AddRow(const T* x, const T* residual, int64_t cols, T* sum) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) sum[c] = RoundTo<T>(C{ToFloat(x[c])} + ToFloat(residual[c]));
}

template <typename C>
struct Moments {
  C mean;
  C rstd;
};

// Two passes over a row that lies in the cache: the deviations are taken from the mean, so that
// nothing cancels.
template <typename T, typename C = ComputeType<T>>
Moments<C> RowMoments(const T* x, int64_t cols, C eps) {
  const C sum = SumInPieces<C>(0, cols, [x](int64_t c) { return C{ToFloat(x[c])}; });
  const C mean = sum / static_cast<C>(cols);
  const C squares = SumInPieces<C>(0, cols, [x, mean](int64_t c) {
    const C d = ToFloat(x[c]) - mean;
    return d * d;
  });
  return {mean, C(1) / Sqrt(squares / static_cast<C>(cols) + eps)};
}

template <typename T, typename C = ComputeType<T>>
void NormalizeRow(const T* x, Moments<C> moments, const T* weight, const T* bias, int64_t cols,
                  T* y) {
  const C mean = moments.mean;
  const C rstd = moments.rstd;
  if (bias == nullptr) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) {
      y[c] = RoundTo<T>((ToFloat(x[c]) - mean) * rstd * ToFloat(weight[c]));
    }
    return;
  }
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) {
    y[c] = RoundTo<T>((ToFloat(x[c]) - mean) * rstd * ToFloat(weight[c]) + ToFloat(bias[c]));
  }
}

template <typename T, typename C = ComputeType<T>>
void ForwardTyped(const LayerNormForwardArgs& args) {
  const int64_t cols = args.cols;
  ParallelFor(args.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = static_cast<const T*>(args.x) + r * cols;
      if (args.residual != nullptr) {
        T* sum = static_cast<T*>(args.sum) + r * cols;
        AddRow(x, static_cast<const T*>(args.residual) + r * cols, cols, sum);
        x = sum;
      }
      const Moments<C> moments = RowMoments(x, cols, static_cast<C>(args.eps));
      NormalizeRow(x, moments, static_cast<const T*>(args.weight), static_cast<const T*>(args.bias),
                   cols, static_cast<T*>(args.y) + r * cols);
      static_cast<C*>(args.mean)[r] = moments.mean;
      static_cast<C*>(args.rstd)[r] = moments.rstd;
    }
  });
}

void Forward(const LayerNormForwardArgs& args, void* /*stream*/) {
  if (args.cols == 0) return;
  Dispatch<float, BFloat16, Float16, double>("layer_norm", args.dtype,
                                             [&](auto tag) { ForwardTyped<decltype(tag)>(args); });
}

// What dx needs to know of a row, and the row's share of dweight and dbias on the way.
template <typename C>
struct RowSums {
  C g;       // mean of dy * weight
  C g_xhat;  // mean of dy * weight * xhat
};

template <typename T, typename C = ComputeType<T>>
RowSums<C> SumRow(const T* x, const T* dy, const T* weight, Moments<C> moments, int64_t cols,
                  C* dweight, C* dbias) {
  const C mean = moments.mean;
  const C rstd = moments.rstd;
  C sum_g = 0;
  C sum_g_xhat = 0;
  ForSumPieces(0, cols, [&](int64_t from, int64_t to) {
    C piece_g = 0;
    C piece_g_xhat = 0;
#pragma omp simd reduction(+ : piece_g, piece_g_xhat)
    for (int64_t c = from; c < to; ++c) {
      const C d = ToFloat(dy[c]);
      const C xhat = (ToFloat(x[c]) - mean) * rstd;
      const C g = d * ToFloat(weight[c]);
      dweight[c] += d * xhat;
      dbias[c] += d;
      piece_g += g;
      piece_g_xhat += g * xhat;
    }
    sum_g += piece_g;
    sum_g_xhat += piece_g_xhat;
  });
  return {sum_g / static_cast<C>(cols), sum_g_xhat / static_cast<C>(cols)};
}

template <typename T, typename C = ComputeType<T>>
void InputGradientRow(const T* x, const T* dy, const T* weight, Moments<C> moments, RowSums<C> sums,
                      const T* dsum, int64_t cols, T* dx) {
  const auto gradient = [=](int64_t c) {
    const C xhat = (ToFloat(x[c]) - moments.mean) * moments.rstd;
    return moments.rstd * (C{ToFloat(dy[c])} * ToFloat(weight[c]) - sums.g - xhat * sums.g_xhat);
  };
  if (dsum == nullptr) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) dx[c] = RoundTo<T>(gradient(c));
    return;
  }
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) dx[c] = RoundTo<T>(ToFloat(dsum[c]) + gradient(c));
}

template <typename T, typename C = ComputeType<T>>
void BackwardTyped(const LayerNormBackwardArgs& args) {
  const int64_t cols = args.cols;
  const int64_t chunk = PartialRows(args.rows);
  C* partials = static_cast<C*>(args.scratch);
  const T* weight = static_cast<const T*>(args.weight);
  ParallelFor(args.rows, chunk, [&](int64_t begin, int64_t end) {
    C* dweight = partials + begin / chunk * 2 * cols;
    C* dbias = dweight + cols;
    for (int64_t c = 0; c < 2 * cols; ++c) dweight[c] = C(0);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = static_cast<const T*>(args.x) + r * cols;
      const T* dy = static_cast<const T*>(args.dy) + r * cols;
      const T* dsum = args.dsum == nullptr ? nullptr : static_cast<const T*>(args.dsum) + r * cols;
      const Moments<C> moments = {static_cast<const C*>(args.mean)[r],
                                  static_cast<const C*>(args.rstd)[r]};
      const RowSums<C> sums = SumRow(x, dy, weight, moments, cols, dweight, dbias);
      InputGradientRow(x, dy, weight, moments, sums, dsum, cols,
                       static_cast<T*>(args.dx) + r * cols);
    }
  });
  const int64_t count = PartialCount(args.rows);
  if (args.dweight != nullptr) {
    AddPartials(partials, count, 2 * cols, cols, args.accumulate, static_cast<C*>(args.dweight));
  }
  if (args.dbias != nullptr) {
    AddPartials(partials + cols, count, 2 * cols, cols, args.accumulate,
                static_cast<C*>(args.dbias));
  }
}

void Backward(const LayerNormBackwardArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("layer_norm backward", args.dtype,
                                             [&](auto tag) { BackwardTyped<decltype(tag)>(args); });
}

int64_t BackwardScratch(int64_t rows, int64_t cols, DType dtype) {
  return PartialCount(rows) * 2 * cols * (dtype == DType::kF64 ? 8 : 4);
}

}  // namespace

extern const LayerNormKernels kLayerNorm;
const LayerNormKernels kLayerNorm = {
    .forward = Forward, .backward = Backward, .backward_scratch = BackwardScratch};

}  // namespace pando::PANDO_ISA
