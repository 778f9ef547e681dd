#include "ops/cpu/integer_cast.h"

#include "ops/cast_math.h"
#include "ops/cpu/rows.h"

namespace pando::PANDO_ISA {
namespace {

template <typename Y, typename X>
void CastTyped(const IntegerCastArgs& args) {
  Y* __restrict y = static_cast<Y*>(args.y);
  const X* __restrict x = static_cast<const X*>(args.x);
  ParallelFor(args.n, kGrain, [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) CastElement(x[i], &y[i]);
  });
}

template <typename Body>
void DispatchInteger(DType dtype, const Body& body) {
  Dispatch<int32_t, int64_t>("integer_cast", dtype, body);
}

}  // namespace

void IntegerCast(const IntegerCastArgs& args, void* /*stream*/) {
  if (IsFloating(args.y_dtype)) {
    DispatchFloating("integer_cast", args.y_dtype, [&](auto y_tag) {
      DispatchInteger(args.x_dtype,
                      [&](auto x_tag) { CastTyped<decltype(y_tag), decltype(x_tag)>(args); });
    });
    return;
  }
  DispatchInteger(args.y_dtype, [&](auto y_tag) {
    Dispatch<float, BFloat16, Float16, double, int32_t, int64_t>(
        "integer_cast", args.x_dtype,
        [&](auto x_tag) { CastTyped<decltype(y_tag), decltype(x_tag)>(args); });
  });
}

}  // namespace pando::PANDO_ISA
