#pragma once

// Conversion of one element to or from an integer, shared by the CPU and CUDA (IntegerCastArgs).

#include "engine/types.h"
#include "engine/vector_math.h"

namespace pando {

/// x towards zero, held to [lowest, -lowest - 1] where `lowest` is the least value of I; NaN is 0.
template <typename I, typename C>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE I SaturatedTo(C x, I lowest) {
  const C low = static_cast<C>(lowest);  // a power of two: exact
  const bool inside = x >= low && x < -low;
  const I truncated = static_cast<I>(inside ? x : C(0));
  return inside ? truncated : (x < low ? lowest : (x > C(0) ? static_cast<I>(~lowest) : I{0}));
}

PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(float x, int32_t* y) {
  *y = SaturatedTo(x, INT32_MIN);
}
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(double x, int32_t* y) {
  *y = SaturatedTo(x, INT32_MIN);
}
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(float x, int64_t* y) {
  *y = SaturatedTo(x, static_cast<int64_t>(INT64_MIN));
}
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(double x, int64_t* y) {
  *y = SaturatedTo(x, static_cast<int64_t>(INT64_MIN));
}
template <typename I>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(BFloat16 x, I* y) {
  CastElement(ToFloat(x), y);
}
template <typename I>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(Float16 x, I* y) {
  CastElement(ToFloat(x), y);
}

template <typename I>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(I x, float* y) {
  *y = static_cast<float>(x);
}
template <typename I>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(I x, double* y) {
  *y = static_cast<double>(x);
}
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(int64_t x, int32_t* y) {
  *y = static_cast<int32_t>(x);
}
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(int32_t x, int64_t* y) { *y = x; }
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(int32_t x, int32_t* y) { *y = x; }
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(int64_t x, int64_t* y) { *y = x; }

/// An f64 that rounds to any narrower format as x itself would: beyond 2^53, bits that an f64 would
/// round away are only noted as not being zero.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE double OddDouble(int64_t x) {
  constexpr int64_t kExact = int64_t{1} << 53;
  const int64_t low = x & 2047;
  const int64_t sticky = (x - low) | (low != 0 ? 1024 : 0);
  return static_cast<double>(x <= kExact && x >= -kExact ? x : sticky);
}

template <typename I>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(I x, BFloat16* y) {
  *y = ToBFloat16(OddFloat(OddDouble(x)));
}
template <typename I>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void CastElement(I x, Float16* y) {
  *y = ToFloat16(OddFloat(OddDouble(x)));
}

}  // namespace pando
