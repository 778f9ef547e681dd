#include "ops/kernels/softmax.h"

#include "engine/cuda/dispatch.h"
#include "ops/cuda/rows.h"
#include "ops/cuda/tables.h"
#include "ops/math.h"

namespace pando {
namespace {

// Packs of a row that a thread holds; backward has two rows.
constexpr int kForwardHeld = 8;
constexpr int kBackwardHeld = 4;

template <typename T, bool kWide, RowTeam kTeam>
__global__ void __launch_bounds__(kRowThreads, 2)
    SoftmaxForward(const T* x, T* y, int64_t rows, int64_t cols) {
  using X = Row<T, kWide, kTeam, kForwardHeld>;
  for (int64_t r = X::First(); r < rows; r += X::Step()) {
    const X row(x + r * cols, cols);
    float max = -__builtin_inff();
    PANDO_UNROLL
    for (int k = 0; k < row.Steps(); ++k) {
      if (!row.Has(k)) break;
      const auto v = row.Get(k);
      for (int j = 0; j < X::kW; ++j) {
        if (j < row.Count(k)) max = MaxOp()(ToFloat(v.v[j]), max);
      }
    }
    max = X::Reduce(MaxOp(), max);
    float sum = 0;
    PANDO_UNROLL
    for (int k = 0; k < row.Steps(); ++k) {
      if (!row.Has(k)) break;
      const auto v = row.Get(k);
      for (int j = 0; j < X::kW; ++j) {
        if (j < row.Count(k)) sum += Exp(ToFloat(v.v[j]) - max);
      }
    }
    const float inverse = 1 / X::Reduce(SumOp(), sum);
    PANDO_UNROLL
    for (int k = 0; k < row.Steps(); ++k) {
      if (!row.Has(k)) break;
      auto v = row.Get(k);
      for (int j = 0; j < X::kW; ++j) v.v[j] = RoundTo<T>(Exp(ToFloat(v.v[j]) - max) * inverse);
      row.Write(y + r * cols, k, v);
    }
  }
}

void Forward(const SoftmaxForwardArgs& args, void* stream) {
  if (args.cols == 0) return;
  DispatchCuda<float, BFloat16, Float16>("softmax", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RowLaunch launch = LaunchForRows<T, kForwardHeld>(
        args.rows, args.cols, IsWideAligned(args.x) && IsWideAligned(args.y));
    DispatchRows(launch, [&](auto wide, auto team) {
      Launch(SoftmaxForward<T, decltype(wide)::value, decltype(team)::value>, launch.blocks,
             launch.threads, launch.shared_bytes, stream, static_cast<const T*>(args.x),
             static_cast<T*>(args.y), args.rows, args.cols);
    });
  });
}

template <typename T, bool kWide, RowTeam kTeam>
__global__ void __launch_bounds__(kRowThreads, 2)
    SoftmaxBackward(const T* y, const T* dy, T* dx, int64_t rows, int64_t cols) {
  using X = Row<T, kWide, kTeam, kBackwardHeld>;
  for (int64_t r = X::First(); r < rows; r += X::Step()) {
    const X values(y + r * cols, cols);
    const X gradients(dy + r * cols, cols);
    float dot = 0;
    PANDO_UNROLL
    for (int k = 0; k < values.Steps(); ++k) {
      if (!values.Has(k)) break;
      const auto v = values.Get(k);
      const auto g = gradients.Get(k);
      // What lies beyond the row is loaded as zeros.
      for (int j = 0; j < X::kW; ++j) dot += ToFloat(v.v[j]) * ToFloat(g.v[j]);
    }
    dot = X::Reduce(SumOp(), dot);
    PANDO_UNROLL
    for (int k = 0; k < values.Steps(); ++k) {
      if (!values.Has(k)) break;
      const auto v = values.Get(k);
      auto g = gradients.Get(k);
      for (int j = 0; j < X::kW; ++j) {
        g.v[j] = RoundTo<T>(ToFloat(v.v[j]) * (ToFloat(g.v[j]) - dot));
      }
      values.Write(dx + r * cols, k, g);
    }
  }
}

void Backward(const SoftmaxBackwardArgs& args, void* stream) {
  if (args.cols == 0) return;
  DispatchCuda<float, BFloat16, Float16>("softmax backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RowLaunch launch = LaunchForRows<T, kBackwardHeld>(
        args.rows, args.cols,
        IsWideAligned(args.y) && IsWideAligned(args.dy) && IsWideAligned(args.dx));
    DispatchRows(launch, [&](auto wide, auto team) {
      Launch(SoftmaxBackward<T, decltype(wide)::value, decltype(team)::value>, launch.blocks,
             launch.threads, launch.shared_bytes, stream, static_cast<const T*>(args.y),
             static_cast<const T*>(args.dy), static_cast<T*>(args.dx), args.rows, args.cols);
    });
  });
}

}  // namespace

const SoftmaxKernels kCudaSoftmax = {.forward = Forward, .backward = Backward};

}  // namespace pando
