#pragma once

// What kernels share: wide loads, and sums and maxima over warps and blocks in a fixed order.

#include <cstdint>

#include "engine/cuda/launch.h"
#include "engine/types.h"

namespace pando {

/// Before a loop whose trip count is known and whose body indexes arrays that must be registers.
#if defined(__CUDACC__)
#define PANDO_UNROLL _Pragma("unroll")
#else
#define PANDO_UNROLL
#endif

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullMask = 0xFFFFFFFFu;

/// N elements that are loaded or stored at once; N * sizeof(T) is at most 16.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

/// Elements of a 16-byte Pack.
template <typename T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

/// Whether `p` is aligned to 16 bytes. For the host, to choose between wide and narrow kernels.
inline bool IsWideAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// The elements p[0 .. min(left, N)), the rest zero. kWide: p is aligned to the Pack, so that N are
/// loaded at once.
template <bool kWide, int N, typename T>
__device__ inline Pack<T, N> LoadPack(const T* p, int64_t left) {
  if (kWide && left >= N) return *reinterpret_cast<const Pack<T, N>*>(p);
  Pack<T, N> pack{};
  for (int k = 0; k < N; ++k) {
    if (k < left) pack.v[k] = p[k];
  }
  return pack;
}

/// Stores what LoadPack loads.
template <bool kWide, int N, typename T>
__device__ inline void StorePack(T* p, int64_t left, const Pack<T, N>& pack) {
  if (kWide && left >= N) {
    *reinterpret_cast<Pack<T, N>*>(p) = pack;
    return;
  }
  for (int k = 0; k < N; ++k) {
    if (k < left) p[k] = pack.v[k];
  }
}

/// This thread's number in the grid, and the grid's threads: where a grid-stride loop begins and
/// how far it steps.
__device__ inline int64_t GridThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t GridThreads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// a + b and the greater of both (NaN if either is), as functors for reductions.
struct SumOp {
  template <typename C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};
struct MaxOp {
  template <typename C>
  __device__ C operator()(C a, C b) const {
    return a > b || a != a ? a : b;
  }
};

/// op over the 32 lanes of a warp, in every lane. All lanes must take part.
template <typename Op, typename C>
__device__ inline C WarpReduce(Op op, C x) {
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    x = op(x, __shfl_xor_sync(kFullMask, x, offset));
  }
  return x;
}

/// op over all threads of a block of at most 1024, in every thread. `shared` holds a C per warp.
/// All threads must take part; has a barrier at its start and end, so that `shared` may be used
/// again at once.
template <typename Op, typename C>
__device__ inline C BlockReduce(Op op, C x, C* shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  x = WarpReduce(op, x);
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  x = shared[0];
  for (int w = 1; w < warps; ++w) x = op(x, shared[w]);
  __syncthreads();
  return x;
}

}  // namespace pando
