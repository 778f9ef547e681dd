// engine/cuda on machines that one does not have: without a GPU, with several, with little memory;
// and in every order of streams and threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/allocator.h"
#include "engine/cuda/cuda_device.h"
#include "engine/error.h"
#include "engine/optimizer.h"
#include "engine/tensor.h"
#include "tests/emulated_cuda/emulated_cuda.h"

namespace pando {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class MachineTest : public testing::Test {
 protected:
  ~MachineTest() override { emulated_cuda::Configure({}); }
};

TEST_F(MachineTest, WithoutAGpu) {
  emulated_cuda::Configure({.devices = 0});
  EXPECT_EQ(CudaDeviceCount(), 0);
  EXPECT_EQ(WhyNoCuda(), "no NVIDIA GPU");
  EXPECT_THAT([] { DescribeCudaDevice(0); },
              ThrowsMessage<InvalidArgument>("cuda:0: no NVIDIA GPU"));
  emulated_cuda::Configure({});
  EXPECT_EQ(CudaDeviceCount(), 1);  // an answer is not kept, nor is the error
}

TEST_F(MachineTest, DescribesTheGpu) {
  emulated_cuda::Configure({.compute_capability = 75, .memory = int64_t{3} << 30});
  const CudaDescription d = DescribeCudaDevice(0);
  EXPECT_EQ(d.compute_capability, 75);
  EXPECT_EQ(d.memory, int64_t{3} << 30);
}

// Calls for either in turn: each must reach its own device.
TEST_F(MachineTest, SeveralGpus) {
  emulated_cuda::Configure({.devices = 2});
  EXPECT_THAT([] { CudaDevice(2); },
              ThrowsMessage<InvalidArgument>("cuda:2: there are 2 GPUs, cuda:0 to cuda:1"));
  Device* devices[] = {&CudaDevice(0), &CudaDevice(1)};
  EXPECT_EQ(devices[1]->name(), "cuda:1");
  Tensor tensors[] = {Tensor::Empty({300}, DType::kF32, *devices[0]),
                      Tensor::Empty({300}, DType::kF32, *devices[1])};
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 2; ++i) {
      devices[i]->current_stream().Launch(
          devices[i]->vector_kernels().fill,
          FillArgs{tensors[i].mutable_data(), DType::kF32, 300, 10.0 * round + i});
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(tensors[i].ToHost<float>(), Each(static_cast<float>(10 * round + i)));
    }
  }
  const auto event = devices[1]->NewEvent();
  devices[1]->current_stream().Record(*event);
  devices[0]->current_stream().Wait(*event);
  devices[1]->Synchronize();
  devices[0]->Synchronize();  // last, as the second one is gone with this test
}

TEST_F(MachineTest, OutOfMemoryOfTheSystemIsOutOfMemory) {
  Device& device = CudaDevice(0);
  device.allocator().ReleaseCached();
  emulated_cuda::Configure({.memory = 8 << 20});
  EXPECT_THAT(
      [&] { Tensor::Empty({5 << 20}, DType::kF32, device, "big"); },
      ThrowsMessage<OutOfMemory>(HasSubstr("cuda:0: no room for big [5242880] (20.0 MiB)")));
  // What is cached makes room.
  Tensor::Empty({1 << 20}, DType::kF32, device, "cached");
  EXPECT_NO_THROW(Tensor::Empty({3 << 19}, DType::kF32, device, "fits"));
}

TEST_F(MachineTest, SumsAreTheSameInEveryOrderOfThreads) {
  std::vector<float> values(150001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 977) * 0.01F;
  Device& device = CudaDevice(0);
  double first = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    emulated_cuda::Configure({.seed = seed});
    const Tensor x = Tensor::FromHost(values, {static_cast<int64_t>(values.size())}, device);
    const double sum = SumOfSquares(x).Item();
    if (seed == 1) first = sum;
    EXPECT_EQ(sum, first);
  }
  long double want = 0;
  for (float v : values) want += static_cast<long double>(v) * v;
  EXPECT_NEAR(first, static_cast<double>(want), 1e-13 * first);
}

}  // namespace
}  // namespace pando
