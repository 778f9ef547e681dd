// The emulation bites: kernels and sequences of host calls, each with one fault, and each caught;
// beside them the same without the fault.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/cuda/block.h"
#include "engine/cuda/cuda_device.h"
#include "engine/cuda/launch.h"
#include "engine/error.h"
#include "engine/tensor.h"
#include "tests/emulated_cuda/emulated_cuda.h"

namespace pando {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr uint64_t kSeeds = 10;

/// n floats of device memory.
class DeviceFloats {
 public:
  explicit DeviceFloats(int64_t n) : bytes_(static_cast<size_t>(n) * sizeof(float)) {
    CheckCuda(cudaMalloc(&p_, bytes_), "cudaMalloc");
  }
  ~DeviceFloats() { (void)cudaFree(p_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  float* get() const { return static_cast<float*>(p_); }
  std::vector<float> Values() const {
    std::vector<float> host(bytes_ / sizeof(float));
    CheckCuda(cudaMemcpy(host.data(), p_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  size_t bytes_;
  void* p_ = nullptr;
};

class EmulatedCudaBites : public testing::Test {
 protected:
  EmulatedCudaBites() {
    emulated_cuda::Configure({});
    CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }
  ~EmulatedCudaBites() override { (void)cudaStreamDestroy(stream_); }

  /// Launches and waits; throws DeviceError with what was wrong.
  template <typename Kernel, typename... Args>
  void Run(Kernel kernel, unsigned grid, unsigned block, int64_t shared_bytes, Args... args) {
    Launch(kernel, dim3(grid), block, shared_bytes, stream_, args...);
    CheckCuda(cudaStreamSynchronize(stream_), "running");
  }

  /// What is wrong with such a run; empty if nothing.
  template <typename... Args>
  std::string Fault(Args... args) {
    try {
      Run(args...);
    } catch (const DeviceError& e) {
      emulated_cuda::Configure({});  // as good as new
      return e.what();
    }
    return "";
  }

  cudaStream_t stream_ = nullptr;
};
using EmulatedCudaDies = EmulatedCudaBites;

// y[i] = x[n - 1 - i] within a block, through shared memory.
template <bool kBarrier>
__global__ void Reverse(float* y) {
  float* shared = SharedMemory<float>();
  const unsigned t = threadIdx.x;
  shared[t] = static_cast<float>(t);
  if (kBarrier) __syncthreads();
  y[t] = shared[blockDim.x - 1 - t];
}

TEST_F(EmulatedCudaBites, MissingBarrier) {
  std::vector<float> want;
  for (int i = 95; i >= 0; --i) want.push_back(static_cast<float>(i));
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    emulated_cuda::Configure({.seed = seed});
    const DeviceFloats y(96);
    Run(Reverse<true>, 1, 96, 384, y.get());
    EXPECT_THAT(y.Values(), ElementsAreArray(want));
    Run(Reverse<false>, 1, 96, 384, y.get());
    const std::vector<float> got = y.Values();
    EXPECT_TRUE(std::any_of(got.begin(), got.end(), [](float v) { return std::isnan(v); })) << seed;
  }
}

// Each warp sums its lanes' values: lanes run one after another, so no warp is in step by itself.
template <bool kBarrier>
__global__ void WarpSums(float* y) {
  float* shared = SharedMemory<float>() + int64_t{threadIdx.x} / 32 * 32;
  const unsigned lane = threadIdx.x % 32;
  shared[lane] = 1;
  for (unsigned half = 16; half > 0; half /= 2) {
    if (kBarrier) __syncwarp();
    const float other = lane < half ? shared[lane + half] : 0;
    if (kBarrier) __syncwarp();
    shared[lane] += other;
  }
  if (lane == 0) y[threadIdx.x / 32] = shared[0];
}

TEST_F(EmulatedCudaBites, MissingWarpBarrier) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    emulated_cuda::Configure({.seed = seed});
    const DeviceFloats y(2);
    Run(WarpSums<true>, 1, 64, 256, y.get());
    EXPECT_THAT(y.Values(), Each(32));
    Run(WarpSums<false>, 1, 64, 256, y.get());
    EXPECT_NE(y.Values()[0], 32) << seed;
  }
}

__global__ void DivergentBarrier(float* y) {
  if (threadIdx.x < 40) __syncthreads();
  y[threadIdx.x] = 0;
}
__global__ void TwoBarriers(float* y) {
  const bool first = threadIdx.x < 32;
  if (first) __syncthreads();
  if (!first) __syncthreads();
  y[threadIdx.x] = 0;
}
__global__ void BarrierAndWarpBarrier(float* y) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  y[threadIdx.x] = 0;
}

TEST_F(EmulatedCudaBites, BarriersInDivergentCode) {
  const DeviceFloats y(64);
  EXPECT_THAT(Fault(DivergentBarrier, 1, 64, 0, y.get()),
              AllOf(HasSubstr("DivergentBarrier"), HasSubstr("block (0, 0, 0)"),
                    HasSubstr("bites_test.cc:"), HasSubstr("has ended")));
  EXPECT_THAT(Fault(TwoBarriers, 1, 64, 0, y.get()),
              HasSubstr("waits at the barrier of tests/emulated_cuda/bites_test.cc:"));
  EXPECT_THAT(Fault(BarrierAndWarpBarrier, 1, 64, 0, y.get()),
              HasSubstr("waits at the warp function of tests/emulated_cuda/bites_test.cc:"));
  EXPECT_EQ(Fault(Reverse<true>, 1, 64, 256, y.get()), "");
}

TEST_F(EmulatedCudaBites, FailureStays) {
  const DeviceFloats y(64);
  EXPECT_THROW(Run(TwoBarriers, 1, 64, 0, y.get()), DeviceError);
  EXPECT_NE(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
}

__global__ void PartOfAWarp(float* y, unsigned lanes, unsigned mask) {
  float sum = 1;
  if (threadIdx.x < lanes) sum += __shfl_xor_sync(mask, sum, 1);
  y[threadIdx.x] = sum;
}

TEST_F(EmulatedCudaBites, WarpFunctionsWithoutAllLanes) {
  const DeviceFloats y(32);
  Run(PartOfAWarp, 1, 32, 0, y.get(), 32, kFullMask);
  EXPECT_THAT(y.Values(), Each(2));
  EXPECT_THAT(Fault(PartOfAWarp, 1, 32, 0, y.get(), 16, kFullMask), HasSubstr("has ended"));
  EXPECT_THAT(Fault(PartOfAWarp, 1, 32, 0, y.get(), 16, 0xFFFF), HasSubstr("without all lanes"));
}

// Shared memory.

/// Writes shared[index], of which there are `floats`; y gets shared[read].
__global__ void UseShared(float* y, int64_t write, int64_t read) {
  float* shared = SharedMemory<float>();
  if (threadIdx.x == 0) {
    if (write >= 0) shared[write] = 1;
    y[0] = shared[read];
  }
}

TEST_F(EmulatedCudaBites, SharedMemoryStartsUndefinedInEachBlock) {
  const DeviceFloats y(1);
  Run(UseShared, 1, 32, 64, y.get(), int64_t{3}, int64_t{3});
  EXPECT_EQ(y.Values()[0], 1);
  Run(UseShared, 1, 32, 64, y.get(), int64_t{-1}, int64_t{3});
  EXPECT_TRUE(std::isnan(y.Values()[0]));
}

TEST_F(EmulatedCudaBites, SharedMemoryOverrunWithinItsLast16Bytes) {
  const DeviceFloats y(1);
  // 60 bytes: what lies between them and the guard page, at 64, is watched.
  EXPECT_THAT(Fault(UseShared, 1, 32, 60, y.get(), int64_t{15}, int64_t{0}),
              HasSubstr("written just past a block's shared memory of 60 bytes"));
}

TEST_F(EmulatedCudaDies, SharedMemoryOverrun) {
  const DeviceFloats y(1);
  EXPECT_DEATH(Run(UseShared, 3, 32, 64, y.get(), int64_t{16}, int64_t{0}),
               "kernel .*UseShared.*, block \\([0-2], 0, 0\\), thread 0: .*"
               "0 bytes past the end of a block's shared memory of 64 bytes");
  EXPECT_DEATH(Run(UseShared, 1, 32, 0, y.get(), int64_t{-1}, int64_t{4}), "shared memory of 0");
}

TEST_F(EmulatedCudaBites, TooMuchSharedMemory) {
  const DeviceFloats y(1);
  const auto run = [&](int64_t bytes) {
    return Fault(UseShared, 1, 32, bytes, y.get(), int64_t{0}, bytes / 4 - 1);
  };
  EXPECT_EQ(run(227 << 10), "");
  EXPECT_THAT(run((227 << 10) + 16), HasSubstr("more shared memory than a block"));
  // Launch asks for more than the default; who launches by himself must.
  const cudaLaunchConfig_t config{.gridDim = 1,
                                  .blockDim = 32,
                                  .dynamicSmemBytes = (48 << 10) + 16,
                                  .stream = stream_,
                                  .attrs = nullptr,
                                  .numAttrs = 0};
  EXPECT_EQ(cudaLaunchKernelEx(&config, Reverse<true>, y.get()), cudaErrorInvalidConfiguration);
  emulated_cuda::Configure({.compute_capability = 75});
  EXPECT_THAT(run(65 << 10), HasSubstr("more shared memory than a block"));
}

// Launches.

__global__ void Nothing() {}

TEST_F(EmulatedCudaBites, LaunchesThatNoDeviceTakes) {
  const auto launch = [&](dim3 grid, unsigned block) {
    try {
      Launch(Nothing, grid, block, 0, stream_);
    } catch (const DeviceError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(launch(dim3(70000), 32), "");
  EXPECT_THAT(launch(1, 1056), HasSubstr("more than 1024"));
  EXPECT_THAT(launch(1, 0), HasSubstr("multiple of 32"));
  EXPECT_THAT(launch(1, 48), HasSubstr("multiple of 32"));
  EXPECT_THAT(launch(dim3(1, 65536), 32), HasSubstr("grid"));
  EXPECT_THAT(launch(dim3(1, 1, 65536), 32), HasSubstr("grid"));
}

// Device memory.

__global__ void Fill(float* y, int64_t n, float value) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) y[i] = value;
}
__global__ void ReadOne(const float* x, int64_t index, float* y) {
  if (threadIdx.x == 0) *y = x[index];
}

TEST_F(EmulatedCudaDies, IndexOffByOne) {
  const DeviceFloats y(1024);
  Run(Fill, 4, 64, 0, y.get(), int64_t{1024}, 2.0F);
  EXPECT_THAT(y.Values(), Each(2));
  EXPECT_DEATH(Run(Fill, 4, 64, 0, y.get(), int64_t{1025}, 2.0F),
               "kernel .*Fill.*, block \\(0, 0, 0\\), thread 0: .*0 bytes past the end of a device "
               "allocation of 4096 bytes");
  EXPECT_DEATH(Run(ReadOne, 1, 32, 0, y.get(), int64_t{1024}, y.get()),
               "ReadOne.*0 bytes past the end");
  EXPECT_DEATH(Run(ReadOne, 1, 32, 0, y.get(), int64_t{-1}, y.get()), "ReadOne.*4 bytes before");
}

__global__ void ReadPack(const float* x, float* y) {
  *reinterpret_cast<Pack<float, 4>*>(y) = *reinterpret_cast<const Pack<float, 4>*>(x);
}

TEST_F(EmulatedCudaDies, UnalignedAccess) {
  const DeviceFloats y(1024);
  Run(ReadPack, 1, 32, 0, y.get() + 4, y.get());
  EXPECT_DEATH(Run(ReadPack, 1, 32, 0, y.get() + 5, y.get()), "ReadPack.*not aligned as its type");
  EXPECT_DEATH(Run(ReadPack, 1, 32, 0, y.get(), y.get() + 2), "ReadPack.*not aligned as its type");
}

TEST_F(EmulatedCudaBites, IndexOffByOneWithinTheLast16Bytes) {
  const DeviceFloats y(1023);
  EXPECT_THAT(Fault(Fill, 4, 64, 0, y.get(), int64_t{1024}, 2.0F),
              HasSubstr("something was written just past a device allocation of 4092 bytes"));
  Run(ReadOne, 1, 32, 0, y.get(), int64_t{1023}, y.get());
  EXPECT_TRUE(std::isnan(y.Values()[0]));
}

TEST_F(EmulatedCudaBites, OutputNotWritten) {
  const DeviceFloats y(100);
  Run(Fill, 1, 32, 0, y.get(), int64_t{99}, 2.0F);
  EXPECT_TRUE(std::isnan(y.Values()[99]));
  EXPECT_EQ(y.Values()[98], 2);
}

TEST_F(EmulatedCudaDies, UseAfterFree) {
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 64), cudaSuccess);
  const auto free_too_early = [&] {
    Launch(Fill, dim3(1), 32, 0, stream_, static_cast<float*>(p), int64_t{16}, 1.0F);
    (void)cudaFree(p);
    (void)cudaStreamSynchronize(stream_);
  };
  EXPECT_DEATH(free_too_early(), "Fill.*bytes into a freed device allocation of 64 bytes");
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
}

TEST_F(EmulatedCudaDies, HostTouchesDeviceMemory) {
  const DeviceFloats y(4);
  Run(Fill, 1, 32, 0, y.get(), int64_t{4}, 2.0F);
  EXPECT_DEATH(*y.get() = 1, "host code touched device memory: .*0 bytes into a device allocation");
  EXPECT_DEATH((void)*const_cast<const volatile float*>(y.get()),
               "host code touched device memory");
}

TEST_F(EmulatedCudaBites, KernelGivenHostMemory) {
  float host = 0;
  EXPECT_THAT(Fault(Fill, 1, 32, 0, &host, int64_t{1}, 2.0F), HasSubstr("IllegalAddress"));
}

TEST_F(EmulatedCudaBites, CopiesOutOfBoundsOrOfTheWrongKind) {
  const DeviceFloats y(4);
  std::vector<float> host(8);
  const auto copy = [&](void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
    const cudaError_t queued = cudaMemcpyAsync(dst, src, bytes, kind, stream_);
    const cudaError_t ran = cudaStreamSynchronize(stream_);
    std::string text = cudaGetErrorString(queued != cudaSuccess ? queued : ran);
    emulated_cuda::Configure({});
    return text;
  };
  EXPECT_EQ(copy(y.get(), host.data(), 16, cudaMemcpyHostToDevice), "cudaSuccess");
  EXPECT_THAT(copy(y.get(), host.data(), 16, cudaMemcpyDeviceToHost), HasSubstr("kind"));
  EXPECT_THAT(copy(host.data(), y.get(), 16, cudaMemcpyHostToDevice), HasSubstr("kind"));
  EXPECT_THAT(copy(y.get(), host.data(), 20, cudaMemcpyHostToDevice),
              HasSubstr("0 bytes into a device allocation of 16 bytes"));
  EXPECT_THAT(copy(host.data(), y.get() + 1, 16, cudaMemcpyDeviceToHost),
              HasSubstr("4 bytes into a device allocation of 16 bytes"));
}

TEST_F(EmulatedCudaBites, CopyFromABufferThatChanges) {
  const DeviceFloats y(1);
  float host = 1;
  CheckCuda(cudaMemcpyAsync(y.get(), &host, sizeof(host), cudaMemcpyHostToDevice, stream_), "copy");
  host = 2;  // too early
  CheckCuda(cudaStreamSynchronize(stream_), "waiting");
  EXPECT_EQ(y.Values()[0], 2);
}

// Streams.

// The value that a second stream reads of what the first writes.
float AcrossStreams(uint64_t seed, bool with_wait, int64_t dropped_wait) {
  emulated_cuda::Configure({.seed = seed, .dropped_wait = dropped_wait});
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t written = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), "making a stream");
  CheckCuda(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), "making a stream");
  CheckCuda(cudaEventCreateWithFlags(&written, cudaEventDisableTiming), "making an event");
  const DeviceFloats x(1), y(1);
  Launch(Fill, dim3(1), 32, 0, first, x.get(), int64_t{1}, 3.0F);
  CheckCuda(cudaEventRecord(written, first), "recording");
  if (with_wait) CheckCuda(cudaStreamWaitEvent(second, written), "ordering");
  Launch(ReadOne, dim3(1), 32, 0, second, x.get(), int64_t{0}, y.get());
  CheckCuda(cudaDeviceSynchronize(), "waiting");
  EXPECT_EQ(cudaEventQuery(written), cudaSuccess);
  (void)cudaEventDestroy(written);
  (void)cudaStreamDestroy(first);
  (void)cudaStreamDestroy(second);
  return y.Values()[0];
}

TEST_F(EmulatedCudaBites, MissingWait) {
  int missing = 0, dropped = 0;
  for (uint64_t seed = 0; seed < 2 * kSeeds; ++seed) {
    EXPECT_EQ(AcrossStreams(seed, true, -1), 3) << seed;
    missing += static_cast<int>(std::isnan(AcrossStreams(seed, false, -1)));
    dropped += static_cast<int>(std::isnan(AcrossStreams(seed, true, 0)));
  }
  EXPECT_GT(missing, 0);
  EXPECT_GT(dropped, 0);
}

TEST_F(EmulatedCudaBites, NothingRunsBeforeSynchronisation) {
  const DeviceFloats y(1);
  Launch(Fill, dim3(1), 32, 0, stream_, y.get(), int64_t{1}, 3.0F);
  EXPECT_TRUE(std::isnan(y.Values()[0]));  // cudaMemcpy does not wait for non-blocking streams
  CheckCuda(cudaStreamSynchronize(stream_), "waiting");
  EXPECT_EQ(y.Values()[0], 3);
}

TEST_F(EmulatedCudaBites, DefaultStream) {
  const DeviceFloats y(1);
  EXPECT_THROW(Launch(Fill, dim3(1), 32, 0, nullptr, y.get(), int64_t{1}, 3.0F), DeviceError);
  cudaStream_t blocking = nullptr;
  EXPECT_NE(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault), cudaSuccess);
}

// Atomics: there are those of integers, and no others.

template <typename T>
concept HasAtomicAdd = requires(T* p, T v) {
  atomicAdd(p, v);
};
static_assert(HasAtomicAdd<int> && HasAtomicAdd<unsigned> && HasAtomicAdd<uint64_t>);
static_assert(!HasAtomicAdd<float> && !HasAtomicAdd<double>);
static_assert(!HasAtomicAdd<BFloat16> && !HasAtomicAdd<Float16>);

// What is not at fault.

template <typename T>
__global__ void Shuffles(T* up, T* down, T* from, T* across, unsigned* votes) {
  const int64_t t = threadIdx.x;
  const T x = static_cast<T>(t);
  up[t] = __shfl_up_sync(kFullMask, x, 3, 8);
  down[t] = __shfl_down_sync(kFullMask, x, 2);
  from[t] = __shfl_sync(kFullMask, x, 5, 16);
  across[t] = __shfl_xor_sync(kFullMask, x, 17);
  votes[t] = __ballot_sync(kFullMask, t % 3 == 0);
  votes[t] += static_cast<unsigned>(__any_sync(kFullMask, t == 40)) << 31;
  votes[t] ^= static_cast<unsigned>(__all_sync(kFullMask, t < 40));
}

template <typename T>
void ExpectShuffles() {
  constexpr int kThreads = 64;
  std::vector<Tensor> outputs(5);
  for (size_t i = 0; i < 5; ++i) {
    const DType dtype = i < 4 ? DTypeOf<T>::value : DType::kI32;
    outputs[i] = Tensor::Empty({kThreads}, dtype, CudaDevice(0));
  }
  struct Args {
    T* p[4];
    unsigned* votes;
  };
  Args args{{}, static_cast<unsigned*>(outputs[4].mutable_data())};
  for (size_t i = 0; i < 4; ++i) args.p[i] = static_cast<T*>(outputs[i].mutable_data());
  const Kernel<Args> run = [](const Args& a, void* stream) {
    Launch(Shuffles<T>, dim3(1), kThreads, 0, stream, a.p[0], a.p[1], a.p[2], a.p[3], a.votes);
  };
  CudaDevice(0).current_stream().Launch(run, args);
  std::vector<std::vector<T>> got;
  for (size_t i = 0; i < 4; ++i) got.push_back(outputs[i].template ToHost<T>());
  const std::vector<int32_t> votes = outputs[4].ToHost<int32_t>();
  for (int t = 0; t < kThreads; ++t) {
    const int lane = t % 32, warp = t - lane;
    const size_t i = static_cast<size_t>(t);
    EXPECT_EQ(got[0][i], lane % 8 < 3 ? t : t - 3);
    EXPECT_EQ(got[1][i], lane < 30 ? t + 2 : t);
    EXPECT_EQ(got[2][i], warp + lane / 16 * 16 + 5);
    EXPECT_EQ(got[3][i], warp + (lane ^ 17));
    // Multiples of 3 are lanes 0, 3, ... of warp 0 and 1, 4, ... of warp 1.
    const unsigned want = warp == 0 ? 0x49249249U ^ 1U : 0x92492492U + 0x80000000U;
    EXPECT_EQ(static_cast<unsigned>(votes[i]), want) << t;
  }
}

TEST_F(EmulatedCudaBites, ShufflesAndVotesAreCudas) {
  ExpectShuffles<float>();
  ExpectShuffles<double>();
  ExpectShuffles<int32_t>();
  ExpectShuffles<int64_t>();
}

__global__ void SumAll(const float* x, float* y) {
  const float sum = BlockReduce(SumOp(), x[threadIdx.x], SharedMemory<float>());
  y[threadIdx.x] =
      BlockReduce(MaxOp(), sum + static_cast<float>(threadIdx.x), SharedMemory<float>());
}

TEST_F(EmulatedCudaBites, NotWhatIsRight) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    emulated_cuda::Configure({.seed = seed});
    const DeviceFloats x(1024), y(1024);
    Run(Fill, 2, 96, 0, x.get(), int64_t{1024}, 0.5F);
    Run(SumAll, 1, 1024, 128, x.get(), y.get());
    EXPECT_THAT(y.Values(), Each(512 + 1023)) << seed;
  }
}

TEST_F(EmulatedCudaBites, WorkForAnotherDevice) {
  emulated_cuda::Configure({.devices = 2});
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDefault), cudaSuccess);
  EXPECT_THROW(Launch(Nothing, dim3(1), 32, 0, stream_), DeviceError);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
}

}  // namespace
}  // namespace pando
