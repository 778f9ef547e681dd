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
    Run(Reverse<true>, 1, 96, 96 * 4, y.get());
    EXPECT_THAT(y.Values(), ElementsAreArray(want));
    Run(Reverse<false>, 1, 96, 96 * 4, y.get());
    const std::vector<float> got = y.Values();
    EXPECT_TRUE(std::any_of(got.begin(), got.end(), [](float v) { return std::isnan(v); })) << seed;
  }
}

// Each warp sums its lanes' values: lanes run one after another, so no warp is in step by itself.
template <bool kBarrier>
__global__ void WarpSums(float* y) {
  float* shared = SharedMemory<float>() + threadIdx.x / 32 * 32;
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
    Run(WarpSums<true>, 1, 64, 64 * 4, y.get());
    EXPECT_THAT(y.Values(), Each(32));
    Run(WarpSums<false>, 1, 64, 64 * 4, y.get());
    EXPECT_NE(y.Values()[0], 32) << seed;
  }
}

__global__ void DivergentBarrier(float* y) {
  if (threadIdx.x < 40) __syncthreads();
  y[threadIdx.x] = 0;
}
__global__ void TwoBarriers(float* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
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
  EXPECT_EQ(Fault(Reverse<true>, 1, 64, 64 * 4, y.get()), "");
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

}  // namespace
}  // namespace pando
