#pragma once

// All PTX but conversions (ptx_convert.h): wrappers of the few instructions that kernels need and
// CUDA C++ lacks. How matrices lie across a warp's lanes is said in the PTX ISA, "Warp-level matrix
// instructions". Compiled by g++ against tests/emulated_cuda, each does the same lane by lane in
// C++ (ptx_twin.h).
//
// A fragment's registers hold two elements each, the one of lower index in the lower half. With
// g = lane / 4 and t = lane % 4, a lane holds of
//     A [16 x 16]  rows g and g + 8, columns 2t, 2t + 1 and 2t + 8, 2t + 9:
//                  a[0] (g, 2t), a[1] (g + 8, 2t), a[2] (g, 2t + 8), a[3] (g + 8, 2t + 8)
//     B [16 x 8]   column g, rows 2t, 2t + 1 in b[0] and 2t + 8, 2t + 9 in b[1]
//     D [16 x 8]   d[0], d[1]: row g, columns 2t, 2t + 1; d[2], d[3]: row g + 8, the same columns.
// For a k of 8, A is only a[0] and a[1], B only b[0].

#include <cstdint>

#include "engine/types.h"

#if defined(__CUDACC__)

namespace pando {

/// Two values rounded to T (BFloat16 or Float16), `low` in the lower half.
template <typename T>
__device__ inline uint32_t PackPair(float low, float high);
template <>
__device__ inline uint32_t PackPair<BFloat16>(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return ToBFloat16(low).bits | static_cast<uint32_t>(ToBFloat16(high).bits) << 16;
#endif
}
template <>
__device__ inline uint32_t PackPair<Float16>(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  uint16_t l, h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(l) : "f"(low));
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(high));
  return l | static_cast<uint32_t>(h) << 16;
#endif
}

/// 2^x with a relative error of 2^-22; results below 2^-126 are 0.
__device__ inline float FastExp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// d += A B over a k of 8, f16 only: all that compute capability 7.5 has.
__device__ inline void MmaM16N8K8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

/// d += A B over a k of 16, in f32. T is BFloat16 (from compute capability 8.0 on) or Float16.
template <typename T>
__device__ inline void MmaM16N8K16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void MmaM16N8K16<Float16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  MmaM16N8K8(d, a[0], a[1], b0);
  MmaM16N8K8(d, a[2], a[3], b1);
#endif
}
template <>
__device__ inline void MmaM16N8K16<BFloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();  // the host refuses bf16 there
#endif
}

/// kCount (1, 2 or 4) 8 x 8 matrices of 16-bit elements from shared memory. Lanes 8m .. 8m + 7 give
/// the addresses of matrix m's rows, each aligned to 16 bytes (other lanes' are unused). r[m] holds
/// of matrix m elements (g, 2t) and (g, 2t + 1), or with kTransposed (2t, g) and (2t + 1, g).
template <bool kTransposed, int kCount>
__device__ inline void LoadMatrix(uint32_t (&r)[kCount], const void* row) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kCount == 1) {
    if constexpr (kTransposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                   : "=r"(r[0])
                   : "r"(at)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                   : "=r"(r[0])
                   : "r"(at)
                   : "memory");
    }
  } else if constexpr (kCount == 2) {
    if constexpr (kTransposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                   : "=r"(r[0]), "=r"(r[1])
                   : "r"(at)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(r[0]), "=r"(r[1])
                   : "r"(at)
                   : "memory");
    }
  } else {
    if constexpr (kTransposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(at)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(at)
                   : "memory");
    }
  }
}

/// Begins to copy 16 bytes from global to shared memory, both aligned to 16 bytes; zeros, and
/// nothing is read, if not `valid`. Not there before WaitForCopies (and a barrier, for other
/// threads). Compute capability 7.5 copies at once.
__device__ inline void CopyAsync16(void* shared, const void* global, bool valid) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(shared) =
      valid ? *static_cast<const uint4*>(global) : make_uint4(0, 0, 0, 0);
#endif
}

/// Closes a group of this thread's copies begun since the last group.
__device__ inline void CommitCopies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until no more than kPending of this thread's groups, the newest, are still under way.
template <int kPending>
__device__ inline void WaitForCopies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
#endif
}

}  // namespace pando

#else
#include "engine/cuda/ptx_twin.h"
#endif
