#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDA_ARCH__)
#include "engine/cuda/ptx_convert.h"
#endif

/// Functions that CPU and CUDA code share are marked with this. In kernels that are compiled once
/// per instruction-set level they are always inlined: a copy compiled for x86-64-v4 must not become
/// the one that the linker keeps for all.
#if defined(__CUDACC__)
#define PANDO_HOST_DEVICE __host__ __device__
#elif defined(PANDO_ISA)
#define PANDO_HOST_DEVICE __attribute__((always_inline))
#else
#define PANDO_HOST_DEVICE
#endif

/// For functions that CPU kernels use: a copy compiled for one instruction set must never be left
/// for the linker to pick as everybody's (see engine/cpu/isa.bzl).
#define PANDO_ALWAYS_INLINE inline __attribute__((always_inline))

namespace pando {

/// Element types of tensors.
enum class DType : uint8_t { kF32, kBF16, kF16, kI32, kI64, kF64 };

/// Size of one element in bytes.
constexpr int64_t SizeOf(DType t) {
  switch (t) {
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

/// "f32", "bf16", "f16", "i32", "i64", "f64".
constexpr const char* Name(DType t) {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kF64:
      return "f64";
  }
  return "?";
}

constexpr bool IsFloating(DType t) { return t != DType::kI32 && t != DType::kI64; }

/// Storage of a bfloat16: the upper half of an f32. Arithmetic is done in f32.
struct BFloat16 {
  uint16_t bits;
};

/// Storage of an IEEE binary16. Arithmetic is done in f32.
struct Float16 {
  uint16_t bits;
};

/// Rounds to nearest, ties to even; NaN stays NaN (quieted), overflow becomes infinity.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE BFloat16 ToBFloat16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return {ptx::BFloat16Bits(x)};
#else
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (u >> 16) | 0x40u;
  return {static_cast<uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded)};
#endif
}

PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE float ToFloat(BFloat16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}

/// Rounds to nearest, ties to even; NaN stays NaN (quieted), overflow becomes infinity.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE Float16 ToFloat16(float x) {
#if defined(__CUDA_ARCH__)
  return {ptx::Float16Bits(x)};
#else
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7FFFFFFFu;
  uint32_t r;
  if (a > 0x7F800000u) {
    r = 0x7E00u | ((a >> 13) & 0x3FFu);
  } else if (a >= 0x477FF000u) {  // rounds to 65536 or more
    r = 0x7C00u;
  } else if (a < 0x38800000u) {  // subnormal in f16: let f32 addition do the rounding
    const float magic = __builtin_bit_cast(float, 0x3F000000u);  // 0.5: its ulp is 2^-24
    r = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, a) + magic) - 0x3F000000u;
  } else {
    r = (a - 0x38000000u + 0xFFFu + ((a >> 13) & 1u)) >> 13;
  }
  return {static_cast<uint16_t>(sign | r)};
#endif
}

PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE float ToFloat(Float16 x) {
#if defined(__CUDA_ARCH__)
  return ptx::FromFloat16Bits(x.bits);
#else
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t a = x.bits & 0x7FFFu;
  uint32_t r;
  if (a >= 0x7C00u) {
    r = 0x7F800000u | (a << 13);
  } else if (a >= 0x400u) {
    r = (a << 13) + 0x38000000u;
  } else {  // zero or subnormal: a * 2^-24 exactly
    r = __builtin_bit_cast(uint32_t, static_cast<float>(a) * 0x1p-24f);
  }
  return __builtin_bit_cast(float, sign | r);
#endif
}

PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE float ToFloat(float x) { return x; }
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE double ToFloat(double x) { return x; }

/// The type in which a kernel computes on elements of type T: f64 for f64, f32 for the rest.
template <typename T>
struct ComputeTypeOf {
  using type = float;
};
template <>
struct ComputeTypeOf<double> {
  using type = double;
};
template <typename T>
using ComputeType = typename ComputeTypeOf<T>::type;

/// Rounds a compute value to storage type T.
template <typename T>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE T RoundTo(ComputeType<T> x) {
  return x;
}
template <>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE BFloat16 RoundTo<BFloat16>(float x) {
  return ToBFloat16(x);
}
template <>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE Float16 RoundTo<Float16>(float x) {
  return ToFloat16(x);
}

/// DType of a C++ element type.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};

}  // namespace pando
