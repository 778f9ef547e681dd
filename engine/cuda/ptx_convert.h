#pragma once

// The GPU's own conversions between f32 and the 16-bit types, one instruction each where bits in
// C++ take eight to twelve: those would bind kernels that should wait for memory. Used by
// engine/types.h, whose C++ for the CPU is the twin of each.

#include <cstdint>

namespace pando::ptx {

#if __CUDA_ARCH__ >= 800
/// The nearest bf16, ties to even. NaN becomes the NaN 0x7FFF.
__device__ __forceinline__ uint16_t BFloat16Bits(float x) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
#endif

/// The nearest f16, ties to even. NaN becomes the NaN 0x7FFF.
__device__ __forceinline__ uint16_t Float16Bits(float x) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

/// The f32 of the same value.
__device__ __forceinline__ float FromFloat16Bits(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

}  // namespace pando::ptx
