#pragma once

// How kernels are launched and how they reach shared memory. Sources of kernels (*.cu.cc) are
// compiled by nvcc for GPUs and, for the tests, by g++ against tests/emulated_cuda; so they keep to
// what README.md calls the source contract.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/cuda/check.h"

/// Before a loop of a constant count that must be unrolled, as its arrays live in registers; and
/// before one that matters too little.
#if defined(__CUDACC__)
#define PANDO_UNROLL _Pragma("unroll")
#define PANDO_NO_UNROLL _Pragma("unroll 1")
#else
#define PANDO_UNROLL
#define PANDO_NO_UNROLL
#endif

namespace pando {

/// The most dynamic shared memory that a block gets without asking, in bytes.
inline constexpr int64_t kDefaultSharedBytes = 48 << 10;

/// Most blocks of a grid-stride kernel, as many as keep a large GPU busy. In the emulation few, so
/// that blocks walk on in tests of moderate size too.
#if defined(__CUDACC__)
inline constexpr int64_t kMostBlocks = 16384;
#else
inline constexpr int64_t kMostBlocks = 2;
#endif

/// Blocks of a grid-stride kernel: enough for `items` at `per_block` each, but no more than
/// kMostBlocks, as each block walks on by the grid's width.
inline unsigned GridFor(int64_t items, int64_t per_block) {
  return static_cast<unsigned>(std::min((items + per_block - 1) / per_block, kMostBlocks));
}

/// A product of a thread's numbers and a tile's constants, far from the end of 32 bits: says that
/// it was meant to be made in them. (Products of sizes are made in 64.)
template <typename Int>
__host__ __device__ inline int64_t Wide(Int product) {
  return product;
}

/// Queues kernel(args...) on the stream (a cudaStream_t) with `shared_bytes` of dynamic shared
/// memory. A grid without blocks is no launch. `block` is a multiple of 32, at most 1024. Throws
/// DeviceError.
template <typename... Params, typename... Args>
void Launch(void (*kernel)(Params...), dim3 grid, unsigned block, int64_t shared_bytes,
            void* native_stream, Args&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > kDefaultSharedBytes) {
    CheckCuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared_bytes)),
              "asking for shared memory");
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(block);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(native_stream);
  CheckCuda(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), "launching a kernel");
}

#if defined(__CUDACC__)
/// The block's dynamic shared memory, aligned to 16 bytes: the only shared memory there is.
template <typename T>
__device__ inline T* SharedMemory() {
  extern __shared__ __align__(16) unsigned char pando_shared_memory[];
  return reinterpret_cast<T*>(pando_shared_memory);
}
#else
template <typename T>
inline T* SharedMemory() {
  return static_cast<T*>(emulated_cuda::SharedMemory());
}
#endif

}  // namespace pando
