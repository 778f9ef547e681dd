#include "ops/kernels/unary.h"

#include "ops/cpu/rows.h"
#include "ops/unary_math.h"

namespace pando::PANDO_ISA {
namespace {

template <typename T, typename F>
void Map(int64_t n, const void* x_data, void* y_data, const F& f) {
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) y[i] = RoundTo<T>(f(ToFloat(x[i])));
  });
}

void Forward(const UnaryArgs& args, void* /*stream*/) {
  DispatchFloating("unary", args.dtype, [&](auto tag) {
    DispatchUnary(args.op, [&](auto math) {
      Map<decltype(tag)>(args.n, args.x, args.y, [math](auto x) { return math.Value(x); });
    });
  });
}

template <typename T, typename Math>
void BackwardTyped(const UnaryBackwardArgs& args, Math math) {
  const T* dy = static_cast<const T*>(args.dy);
  const T* saved = static_cast<const T*>(args.saved);
  T* dx = static_cast<T*>(args.dx);
  ParallelFor(args.n, kGrain, [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) {
      dx[i] = RoundTo<T>(math.Grad(ToFloat(dy[i]), ToFloat(saved[i])));
    }
  });
}

void Backward(const UnaryBackwardArgs& args, void* /*stream*/) {
  UnaryBackwardArgs read = args;
  // What is not read may be null.
  if (SavedBy(args.op) == UnarySaves::kNothing) read.saved = args.dy;
  DispatchFloating("unary backward", args.dtype, [&](auto tag) {
    DispatchUnary(args.op, [&](auto math) { BackwardTyped<decltype(tag)>(read, math); });
  });
}

void Affine(const AffineArgs& args, void* /*stream*/) {
  DispatchFloating("affine", args.dtype, [&](auto tag) {
    using C = ComputeType<decltype(tag)>;
    const C a = static_cast<C>(args.a);
    const C b = static_cast<C>(args.b);
    Map<decltype(tag)>(args.n, args.x, args.y, [a, b](C x) { return a * x + b; });
  });
}

}  // namespace

extern const UnaryKernels kUnaryKernels;
const UnaryKernels kUnaryKernels = {
    .forward = Forward,
    .backward = Backward,
    .affine = Affine,
};

}  // namespace pando::PANDO_ISA
