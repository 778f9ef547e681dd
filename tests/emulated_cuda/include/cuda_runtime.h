#pragma once

// Stand-in for CUDA's header of the same name: the kernel language, so that g++ compiles kernels
// that keep to the source contract of engine/cuda/README.md, and their launch. There is no shared
// memory but emulated_cuda::SharedMemory, no arithmetic on halves, and no atomics but integers'.

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

// Names are CUDA's.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming)

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  // NOLINTNEXTLINE(google-explicit-constructor): as in CUDA
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

/// Of the thread that runs; set by the emulation.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace emulated_cuda {

/// Where a barrier or warp function is called.
#define EMULATED_CUDA_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

/// The block's dynamic shared memory, aligned to 16 bytes.
void* SharedMemory();
/// Waits for all threads of the block, or of the warp.
void BlockBarrier(const char* file, int line);
void WarpBarrier(unsigned mask, const char* file, int line);
/// Room in the warp for 32 values of `bytes` each, to be filled before the next warp barrier; good
/// until the next call.
void* WarpExchange(size_t bytes);
inline int Lane() { return static_cast<int>(threadIdx.x % 32); }

/// The values that the 32 lanes of the warp pass, by lane. All of them must call it (it is a warp
/// barrier); good until the next such call.
template <typename T>
const T* WarpGather(const T& mine, EMULATED_CUDA_SITE, unsigned mask = 0xFFFFFFFFu) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 16);
  char* values = static_cast<char*>(WarpExchange(sizeof(T)));
  std::memcpy(values + static_cast<size_t>(Lane()) * sizeof(T), &mine, sizeof(T));
  WarpBarrier(mask, file, line);
  return reinterpret_cast<const T*>(values);
}

/// The value of lane `source`, within segments of `width` lanes; beyond its segment, the own one.
template <typename T>
T Shuffle(unsigned mask, T mine, int (*source)(int lane, int by, int width), int by, int width,
          EMULATED_CUDA_SITE) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  return WarpGather(mine, file, line, mask)[source(Lane(), by, width)];
}

/// Queues the grid; `thread` is what each thread runs.
cudaError_t QueueLaunch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                        cudaStream_t stream, std::function<void()> thread);
/// Whether a kernel may be given `pointer`: null, or in device or pinned memory.
bool ReachableFromDevice(const void* pointer);

template <typename T>
bool Reachable(const T& argument) {
  if constexpr (std::is_pointer_v<T>) return ReachableFromDevice(argument);
  return true;
}

}  // namespace emulated_cuda

inline void __syncthreads(EMULATED_CUDA_SITE) { emulated_cuda::BlockBarrier(file, line); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, EMULATED_CUDA_SITE) {
  emulated_cuda::WarpBarrier(mask, file, line);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, EMULATED_CUDA_SITE) {
  constexpr auto kSource = [](int own, int by, int w) { return (own & ~(w - 1)) + (by & (w - 1)); };
  return emulated_cuda::Shuffle<T>(mask, value, kSource, lane, width, file, line);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, EMULATED_CUDA_SITE) {
  constexpr auto kSource = [](int own, int x, int w) {
    return ((own ^ x) & ~(w - 1)) <= (own & ~(w - 1)) ? own ^ x : own;
  };
  return emulated_cuda::Shuffle<T>(mask, value, kSource, by, width, file, line);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATED_CUDA_SITE) {
  constexpr auto kSource = [](int own, int d, int w) {
    return (own & (w - 1)) - d >= 0 ? own - d : own;
  };
  return emulated_cuda::Shuffle<T>(mask, value, kSource, static_cast<int>(by), width, file, line);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATED_CUDA_SITE) {
  constexpr auto kSource = [](int own, int d, int w) {
    return (own & (w - 1)) + d < w ? own + d : own;
  };
  return emulated_cuda::Shuffle<T>(mask, value, kSource, static_cast<int>(by), width, file, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATED_CUDA_SITE) {
  const bool* lanes = emulated_cuda::WarpGather(predicate != 0, file, line, mask);
  unsigned bits = 0;
  for (unsigned i = 0; i < 32; ++i) bits |= static_cast<unsigned>(lanes[i]) << i;
  return bits;
}
inline int __any_sync(unsigned mask, int predicate, EMULATED_CUDA_SITE) {
  return static_cast<int>(__ballot_sync(mask, predicate, file, line) != 0);
}
inline int __all_sync(unsigned mask, int predicate, EMULATED_CUDA_SITE) {
  return static_cast<int>(__ballot_sync(mask, predicate, file, line) == 0xFFFFFFFFu);
}

// Threads take turns, so that plain code is atomic. Of these there are none for floating types, and
// no conversion leads to one.
namespace emulated_cuda {
template <typename T, typename F>
T Exchange(T* address, F f) {
  const T old = *address;
  *address = f(old);
  return old;
}
}  // namespace emulated_cuda
#define EMULATED_CUDA_ATOMIC(name, expression)                                           \
  template <typename T>                                                                  \
  requires std::is_integral_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8) T name(            \
      T* address, std::type_identity_t<T> value) {                                       \
    return emulated_cuda::Exchange(address, [value](T old) -> T { return expression; }); \
  }
EMULATED_CUDA_ATOMIC(atomicAdd, old + value)
EMULATED_CUDA_ATOMIC(atomicOr, old | value)
EMULATED_CUDA_ATOMIC(atomicAnd, old& value)
EMULATED_CUDA_ATOMIC(atomicExch, ((void)old, value))
EMULATED_CUDA_ATOMIC(atomicMax, old < value ? value : old)
EMULATED_CUDA_ATOMIC(atomicMin, value < old ? value : old)
#undef EMULATED_CUDA_ATOMIC
inline void __threadfence() {}

template <typename T>
T __ldg(const T* address) {
  return *address;
}
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0F / x; }

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  void* attrs;
  unsigned numAttrs;
};

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  static_assert((std::is_trivially_copyable_v<std::decay_t<Params>> && ...));
  static_assert((sizeof(std::decay_t<Params>) + ... + 0) <= 4096, "parameters beyond 4 KiB");
  const std::tuple<std::decay_t<Params>...> params(std::forward<Args>(args)...);
  const bool reachable =
      std::apply([](const auto&... p) { return (emulated_cuda::Reachable(p) && ...); }, params);
  if (!reachable) return cudaErrorIllegalAddress;
  return emulated_cuda::QueueLaunch(reinterpret_cast<const void*>(kernel), config->gridDim,
                                    config->blockDim, config->dynamicSmemBytes, config->stream,
                                    [kernel, params] { std::apply(kernel, params); });
}

// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)
