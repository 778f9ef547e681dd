#pragma once

// Per-element mathematics, written once for CPU and CUDA. The f32 forms have neither branches nor
// calls, so that loops over them vectorise; the f64 forms, for checking, use the C library. Where a
// GPU has an instruction for the greater part of a form (2^x, 1 / x), that is used: half of the
// instructions, where the others would bind kernels that should wait for memory.

#include <cstdint>

#include "engine/types.h"

namespace pando {

/// a / b. On CUDA within 2 units in the last place if |b| lies in [2^-126, 2^126], and 0 for a
/// finite a and a greater |b|.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE float Divide(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdividef(a, b);
#else
  return a / b;
#endif
}
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE double Divide(double a, double b) { return a / b; }

/// e^x within 1 unit in the last place over the whole range of f32: subnormal results included, 0
/// and infinity outside it, NaN for NaN. Cody-Waite reduction to r in [-ln(2)/2, ln(2)/2] and a
/// polynomial of degree 6 that is minimax in relative error (0.06 * 2^-24).
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE float Exp(float x) {
#if defined(__CUDA_ARCH__)
  return expf(x);
#else
  const float clamped = x > 89.0f ? 89.0f : (x < -105.0f ? -105.0f : x);
  // Adding 1.5 * 2^23 rounds to an integer, and leaves it in the low bits.
  const float shifted = clamped * 0x1.715476p+0f + 0x1.8p+23f;
  const float n = shifted - 0x1.8p+23f;
  // The head of ln(2) has 15 bits, so that n * head is exact.
  const float r = (clamped - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float q = 0.0013814467f;
  q = q * r + 0.008368781f;
  q = q * r + 0.041668393f;
  q = q * r + 0.1666652f;
  q = q * r + 0.49999994f;
  const float e = (r * r) * q + r + 1.0f;
  // 2^n in two factors: each a normal number, and only the last product rounds.
  const int32_t k = __builtin_bit_cast(int32_t, shifted) - 0x4B400000;
  const int32_t half = k >> 1;
  const float scale1 = __builtin_bit_cast(float, (half + 127) << 23);
  const float scale2 = __builtin_bit_cast(float, (k - half + 127) << 23);
  return e * scale1 * scale2;
#endif
}
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE double Exp(double x) { return __builtin_exp(x); }

/// Natural logarithm within 1 unit in the last place: -infinity of 0, NaN of negatives. x = 2^k m
/// with m in [sqrt(1/2), sqrt(2)); with f = m - 1 and s = f / (2 + f), log(m) = 2 atanh(s) = f - s
/// (f - R), where R = s^2 times a polynomial in s^2 that is minimax in relative error (0.02 *
/// 2^-24).
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE float Log(float x) {
  const bool subnormal = x < 0x1p-126f;
  const float normal = subnormal ? x * 0x1p+23f : x;
  const uint32_t above = __builtin_bit_cast(uint32_t, normal) - 0x3F3504F3u;  // sqrt(1/2)
  const auto k = static_cast<float>((static_cast<int32_t>(above) >> 23) - (subnormal ? 23 : 0));
  const float f = __builtin_bit_cast(float, (above & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
  const float s = f / (2.0f + f);
  const float z = s * s;
  const float r = z * (0.66666776f + z * (0.39977527f + z * 0.29872158f));
  // The head of ln(2) has 15 bits, so that k * head is exact.
  const float log = k * 0x1.62e4p-1f + (f - (s * (f - r) - k * 0x1.7f7d1cp-20f));
  const float positive = x < __builtin_inff() ? log : x;
  return x > 0.0f ? positive : (x == 0.0f ? -__builtin_inff() : __builtin_nanf(""));
}
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE double Log(double x) { return __builtin_log(x); }

PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE float Sqrt(float x) { return __builtin_sqrtf(x); }
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE double Sqrt(double x) { return __builtin_sqrt(x); }

/// e^-x, held below infinity so that products of it with 0 stay 0. For sigmoids.
template <typename C>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE C ExpNegated(C x) {
  const C z = -x;
  return Exp(z > C(80) ? C(80) : z);
}

/// 1 / (1 + e^-x).
template <typename C>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE C Sigmoid(C x) {
  return C(1) / (C(1) + Exp(-x));
}

/// SiLU, x sigmoid(x) (Elfwing, Uchibe & Doya, 2017).
template <typename C>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE C Silu(C x) {
  return x / (C(1) + Exp(-x));
}

/// d Silu(x) / dx = s + x s (1 - s), with s = sigmoid(x) and 1 - s = sigmoid(-x).
template <typename C>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE C SiluDerivative(C x) {
  return Sigmoid(x) * (C(1) + x * Sigmoid(-x));
}

/// Hyperbolic tangent within 2 units in the last place: up to 5/8 by a polynomial in x^2 that is
/// minimax in relative error (0.08 * 2^-24), beyond as 1 - 2 / (e^2|x| + 1).
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE float Tanh(float x) {
  const float a = __builtin_fabsf(x);
  const float z = x * x;
  float p = -0.0057049785f;
  p = p * z + 0.020639079f;
  p = p * z - 0.05373971f;
  p = p * z + 0.13331442f;
  p = p * z - 0.3333328f;
  const float near = x + x * (z * p);
  const float far = __builtin_copysignf(1.0f - Divide(2.0f, Exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near : far;
}
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE double Tanh(double x) { return __builtin_tanh(x); }

/// The argument of the tanh in Gelu, times 2: 2 sqrt(2/pi) (x + 0.044715 x^3).
template <typename C>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE C GeluArgument(C x) {
  constexpr C kScale = C(1.5957691216057307117597842397375);  // 2 sqrt(2/pi)
  return x * (kScale + kScale * C(0.044715) * (x * x));
}

/// GELU in its tanh form (Hendrycks & Gimpel, "Gaussian error linear units", 2016):
/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), computed as x sigmoid(2u), which is the same
/// and loses nothing where tanh nears -1.
template <typename C>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE C Gelu(C x) {
  return Divide(x, C(1) + ExpNegated(GeluArgument(x)));
}

/// d Gelu(x) / dx = s + x s (1 - s) (2u)', with s = sigmoid(2u).
template <typename C>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE C GeluDerivative(C x) {
  constexpr C kScale = C(1.5957691216057307117597842397375);
  const C e = ExpNegated(GeluArgument(x));
  const C s = Divide(C(1), C(1) + e);
  const C slope = kScale + C(3) * kScale * C(0.044715) * (x * x);
  return s * (C(1) + x * slope * (e * s));
}

}  // namespace pando
