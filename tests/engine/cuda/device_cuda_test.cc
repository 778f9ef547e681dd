// The device seam on cuda:0, a GPU or an emulated one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "engine/allocator.h"
#include "engine/cuda/cuda_device.h"
#include "engine/error.h"
#include "engine/tensor.h"

namespace pando {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << WhyNoCuda();
    device_ = &CudaDevice(0);
  }
  /// y = value, on the current stream.
  void Fill(Tensor& y, double value) {
    device_->current_stream().Launch(device_->vector_kernels().fill,
                                     FillArgs{y.mutable_data(), y.dtype(), y.numel(), value});
  }

  Device* device_ = nullptr;
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  EXPECT_EQ(device_->type(), DeviceType::kCuda);
  EXPECT_EQ(device_->name(), "cuda:0");
  EXPECT_EQ(&CudaDevice(0), device_);
  EXPECT_EQ(WhyNoCuda(), "");
  const CudaDescription d = DescribeCudaDevice(0);
  EXPECT_FALSE(d.name.empty());
  EXPECT_GE(d.compute_capability, 75);
  EXPECT_GT(d.multiprocessors, 0);
  EXPECT_EQ(d.memory, device_->TotalMemory());
}

TEST_F(CudaDeviceTest, OneThatIsNotThereIsNamed) {
  const int count = CudaDeviceCount();
  const std::string name = "cuda:" + std::to_string(count);
  EXPECT_THAT([&] { CudaDevice(count); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr(name + ": "), HasSubstr(std::to_string(count) + " GPU"))));
  EXPECT_THROW(CudaDevice(-1), InvalidArgument);
  EXPECT_THROW(DescribeCudaDevice(count), InvalidArgument);
}

TEST_F(CudaDeviceTest, CopiesPageableAndPinnedMemory) {
  const std::vector<int32_t> values = {1, 2, 3, 4, 5};
  const Tensor a = Tensor::FromHost(values, {5}, *device_);
  Tensor b = Tensor::Empty({5}, DType::kI32, *device_);
  b.CopyFrom(a);
  EXPECT_EQ(b.ToHost<int32_t>(), values);

  auto* pinned = static_cast<int32_t*>(device_->AllocateHost(20));
  ASSERT_NE(pinned, nullptr);
  Stream& stream = device_->current_stream();
  stream.SetBytes(b.mutable_data(), 0x01, 12);
  stream.Copy(pinned, b.data(), 20, CopyKind::kDeviceToHost);
  stream.Synchronize();
  EXPECT_THAT(std::vector<int32_t>(pinned, pinned + 5),
              ElementsAre(0x01010101, 0x01010101, 0x01010101, 4, 5));
  pinned[0] = 7;
  stream.Copy(b.mutable_data(), pinned, 20, CopyKind::kHostToDevice);
  EXPECT_EQ(b.ToHost<int32_t>()[0], 7);
  device_->FreeHost(pinned, 20);

  stream.Copy(nullptr, nullptr, 0, CopyKind::kHostToDevice);
  stream.SetBytes(nullptr, 0, 0);
  stream.Synchronize();
}

// Long work on one stream, read by another: without the wait it would be read too early.
TEST_F(CudaDeviceTest, EventsOrderStreams) {
  constexpr int64_t kN = 1 << 16;
  const auto second = device_->NewStream();
  const auto filled = device_->NewEvent();
  const auto read = device_->NewEvent();
  Tensor from = Tensor::Empty({kN}, DType::kF32, *device_);
  Tensor to = Tensor::Empty({kN}, DType::kF32, *device_);
  filled->Synchronize();  // never recorded: no wait
  second->Wait(*filled);  // nor here
  for (int round = 1; round <= 5; ++round) {
    device_->current_stream().Wait(*read);
    for (int again = 0; again < 5; ++again) Fill(from, again == 4 ? round : -1);
    device_->current_stream().Record(*filled);
    second->Wait(*filled);
    second->Copy(to.mutable_data(), from.data(), to.bytes(), CopyKind::kDeviceToDevice);
    second->Record(*read);
    read->Synchronize();
    EXPECT_THAT(to.ToHost<float>(), Each(static_cast<float>(round)));
  }
  device_->Synchronize();
}

TEST_F(CudaDeviceTest, StreamGuardChoosesTheStreamOfKernels) {
  const auto second = device_->NewStream();
  EXPECT_EQ(&second->device(), device_);
  Tensor t = Tensor::Empty({100}, DType::kI64, *device_);
  device_->Synchronize();
  {
    const StreamGuard guard(*second);
    EXPECT_EQ(&device_->current_stream(), second.get());
    Fill(t, 3);
    second->Synchronize();
  }
  EXPECT_THAT(t.ToHost<int64_t>(), Each(3));
}

TEST_F(CudaDeviceTest, WorksFromOtherThreads) {
  std::vector<std::vector<float>> got(3);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i) {
    threads.emplace_back([this, i, &got] {
      const auto stream = device_->NewStream();
      const StreamGuard guard(*stream);
      Tensor t = Tensor::Empty({1000}, DType::kF32, *device_);
      Fill(t, static_cast<double>(i));
      got[i] = t.ToHost<float>();
    });
  }
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_THAT(got[i], Each(static_cast<float>(i)));
}

TEST_F(CudaDeviceTest, AllocatorKeepsAndReuses) {
  Allocator& allocator = device_->allocator();
  const auto use = [this] {
    Tensor a = Tensor::Empty({3 << 20}, DType::kF32, *device_, "a");
    Tensor b = Tensor::Empty({1000}, DType::kF32, *device_, "b");
    Fill(a, 1);
    Fill(b, 2);
  };
  use();
  const MemoryStats before = allocator.stats();
  for (int i = 0; i < 10; ++i) use();
  EXPECT_EQ(allocator.stats().system_allocations, before.system_allocations);
  EXPECT_EQ(allocator.stats().in_use, before.in_use);
  allocator.ReleaseCached();
  EXPECT_LT(allocator.stats().reserved, before.reserved);
}

TEST_F(CudaDeviceTest, BudgetIsNamed) {
  Allocator& allocator = device_->allocator();
  allocator.ReleaseCached();
  allocator.SetBudget(64 << 20);
  EXPECT_THAT(
      [&] {
        Tensor::Empty({32, 1 << 20}, DType::kF32, *device_, "scores");
      },
      ThrowsMessage<OutOfMemory>(
          AllOf(HasSubstr("cuda:0: no room for scores [32, 1048576] (128.0 MiB)"),
                HasSubstr("of a budget of 64.0 MiB"))));
  allocator.SetBudget(device_->TotalMemory());
}

TEST_F(CudaDeviceTest, NoMoreMemoryIsNoOtherCallsError) {
  EXPECT_EQ(device_->AllocateFromSystem(int64_t{1} << 50), nullptr);
  Tensor t = Tensor::Empty({10}, DType::kF32, *device_);
  Fill(t, 1);
  EXPECT_THAT(t.ToHost<float>(), Each(1));
}

TEST_F(CudaDeviceTest, ErrorFlagIsThrownOnce) {
  EXPECT_NO_THROW(device_->CheckErrorFlag());
  const Tensor bad = Tensor::FromHost(std::vector<float>{1, NAN}, {2}, *device_);
  // The kernel that reports a token out of range sets this bit too.
  static_assert(kIndexOutOfRange == 1);
  device_->current_stream().Launch(
      device_->vector_kernels().non_finite,
      NonFiniteArgs{bad.data(), DType::kF32, 2, device_->error_flag()});
  EXPECT_THROW(device_->CheckErrorFlag(), InvalidArgument);
  EXPECT_NO_THROW(device_->CheckErrorFlag());
}

TEST_F(CudaDeviceTest, ErrorsNameTheCall) {
  EXPECT_THAT([&] { device_->FreeToSystem(&device_, 8); },
              ThrowsMessage<DeviceError>(HasSubstr("cudaFree")));
}

}  // namespace
}  // namespace pando
