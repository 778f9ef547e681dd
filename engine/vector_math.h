#pragma once

// Per-element mathematics of the vector kernels, shared by the CPU and CUDA.

#include "engine/types.h"
#include "engine/vector_kernels.h"

namespace pando {

/// Rounds x to the bf16 below or above in magnitude, using the upper 16 of 32 random bits: up with
/// a probability equal to the discarded fraction, so that the expected value is x. Infinity and NaN
/// stay what they are.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE BFloat16 StochasticBFloat16(float x, uint32_t random) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (u + (random >> 16)) >> 16;
  const uint32_t kept = (u >> 16) | ((u & 0x7FFFFFFFu) > 0x7F800000u ? 0x40u : 0u);
  return {static_cast<uint16_t>((u & 0x7F800000u) == 0x7F800000u ? kept : rounded)};
}

/// x as an f32 rounded to odd: truncated, with the last bit set if anything was cut off. Rounding
/// that to bf16 or f16 gives what rounding x directly would; rounding twice to nearest would not.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE float OddFloat(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  uint32_t bits = __builtin_bit_cast(uint32_t, nearest);
  bits -= __builtin_fabs(back) > __builtin_fabs(x) ? 1u : 0u;
  bits |= back != x ? 1u : 0u;
  return x == x ? __builtin_bit_cast(float, bits) : nearest;
}

/// x as a T: floating types rounded once, to nearest; integers truncated.
template <typename T>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE T FromDouble(double x) {
  return static_cast<T>(x);
}
template <>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE BFloat16 FromDouble<BFloat16>(double x) {
  return ToBFloat16(OddFloat(x));
}
template <>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE Float16 FromDouble<Float16>(double x) {
  return ToFloat16(OddFloat(x));
}

/// x rounded to nearest in the floating type Y.
template <typename Y, typename X>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE Y RoundFrom(X x) {
  if constexpr (sizeof(X) == sizeof(double)) {
    return FromDouble<Y>(x);
  } else if constexpr (sizeof(Y) == sizeof(double)) {
    return ToFloat(x);
  } else {
    return RoundTo<Y>(ToFloat(x));
  }
}

/// A scalar argument a, times the one in memory unless that is null.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE double ScaledBy(const float* factor, double a) {
  return factor == nullptr ? a : a * static_cast<double>(*factor);
}

/// The scalars of an AdamW step, formed in f64 (1 - beta2 would lose 14 bits in f32) and rounded
/// once.
struct AdamWFactors {
  float decay;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float inverse_sqrt_correction2;
  float eps;
  float step_size;
};

PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE AdamWFactors MakeAdamWFactors(const AdamWArgs& a) {
  AdamWFactors f;
  f.decay = static_cast<float>(1.0 - a.lr * a.weight_decay);
  f.beta1 = static_cast<float>(a.beta1);
  f.one_minus_beta1 = static_cast<float>(1.0 - a.beta1);
  f.beta2 = static_cast<float>(a.beta2);
  f.one_minus_beta2 = static_cast<float>(1.0 - a.beta2);
  f.inverse_sqrt_correction2 = static_cast<float>(1.0 / __builtin_sqrt(a.bias_correction2));
  f.eps = static_cast<float>(a.eps);
  f.step_size = static_cast<float>(a.lr / a.bias_correction1);
  return f;
}

/// Updates one parameter and its moments; `g` is the scaled gradient. See AdamWArgs.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void AdamWElement(const AdamWFactors& f, float g, float& p,
                                                        float& m, float& v) {
  m = f.beta1 * m + f.one_minus_beta1 * g;
  v = f.beta2 * v + f.one_minus_beta2 * g * g;
  const float denominator = __builtin_sqrtf(v) * f.inverse_sqrt_correction2 + f.eps;
  p = f.decay * p - f.step_size * (m / denominator);
}

}  // namespace pando
