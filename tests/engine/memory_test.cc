// The allocator, storage and streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/allocator.h"
#include "engine/cpu/cpu_device.h"
#include "engine/tensor.h"

namespace pando {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(Allocator, ReusesFreedBlocks) {
  const auto device = NewDeferredCpuDevice(1);
  const void* first = nullptr;
  for (int i = 0; i < 10; ++i) {
    Tensor a = Tensor::Empty({3 * kMiB}, DType::kF32, *device);
    Tensor b = Tensor::Empty({1000}, DType::kF32, *device);
    if (i == 0) first = a.data();
    EXPECT_EQ(a.data(), first);
  }
  EXPECT_EQ(device->allocator().stats().system_allocations, 2);
  EXPECT_EQ(device->allocator().stats().in_use, 0);
}

TEST(Allocator, SplitsAndMerges) {
  const auto device = NewDeferredCpuDevice(1);
  Tensor::Empty({16 * kMiB}, DType::kI32, *device);
  {
    std::vector<Tensor> parts;
    parts.reserve(16);
    for (int i = 0; i < 16; ++i) parts.push_back(Tensor::Empty({kMiB}, DType::kI32, *device));
    std::swap(parts[3], parts[11]);
    while (!parts.empty()) parts.erase(parts.begin() + std::ssize(parts) / 2);
  }
  Tensor::Empty({16 * kMiB}, DType::kI32, *device);
  EXPECT_EQ(device->allocator().stats().system_allocations, 1);
  EXPECT_EQ(device->allocator().stats().peak_in_use, 64 * kMiB);
}

TEST(Allocator, BudgetNamesWhatDidNotFit) {
  const auto device = NewDeferredCpuDevice(1);
  device->allocator().SetBudget(64 * kMiB);
  Tensor a = Tensor::Empty({8, kMiB}, DType::kF32, *device, "a");
  EXPECT_THAT(
      [&] {
        Tensor::Empty({16, kMiB}, DType::kF32, *device, "attention scores");
      },
      ::testing::ThrowsMessage<OutOfMemory>(
          AllOf(HasSubstr("attention scores [16, 1048576] (64.0 MiB)"),
                HasSubstr("32.0 MiB in use of a budget of 64.0 MiB, 32.0 MiB left"))));
  // Cached blocks of other sizes make room.
  a = Tensor();
  Tensor b = Tensor::Empty({16, kMiB}, DType::kF32, *device, "b");
  EXPECT_EQ(device->allocator().stats().reserved, 64 * kMiB);
  EXPECT_THAT(device->allocator().InUseByName(), ElementsAre(std::pair("b", 64 * kMiB)));
}

TEST(Allocator, PeakFollowsUseAndResets) {
  const auto device = NewDeferredCpuDevice(1);
  Tensor::Empty({4 * kMiB}, DType::kI64, *device);
  device->allocator().ResetPeak();
  EXPECT_EQ(device->allocator().stats().peak_in_use, 0);
}

TEST(DirectAllocator, EveryBlockIsTheSystemsAndExact) {
  const auto device = NewDeferredCpuDevice(1);
  Tensor cached = Tensor::Empty({kMiB}, DType::kF32, *device);
  cached = Tensor();
  Allocator& allocator = device->allocator();
  allocator.SetDirect(true);
  EXPECT_EQ(allocator.stats().reserved, 0);  // what was cached is given back
  const int64_t before = allocator.stats().system_allocations;
  Tensor kept = Tensor::Empty({7}, DType::kBF16, *device, "kept");
  EXPECT_EQ(allocator.stats().reserved, 14);
  for (int i = 0; i < 3; ++i) {
    Tensor passing = Tensor::Empty({1001}, DType::kF32, *device, "passing");
    EXPECT_EQ(allocator.stats().reserved, 14 + 4004);
    EXPECT_EQ(allocator.stats().in_use, 14 + 4004);
  }
  EXPECT_EQ(allocator.stats().system_allocations, before + 4);
  EXPECT_EQ(allocator.stats().reserved, 14);
  EXPECT_THAT(allocator.InUseByName(), ElementsAre(std::pair("kept", 14)));
  // Made directly, so freed directly, whatever holds by then.
  allocator.SetDirect(false);
  kept = Tensor();
  EXPECT_EQ(allocator.stats().reserved, 0);
}

TEST(DirectAllocator, FreedOnlyWhenNothingQueuedUsesIt) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto device = NewDeferredCpuDevice(seed);
    const auto second = device->NewStream();
    device->allocator().SetDirect(true);
    Tensor to = Tensor::Empty({1000}, DType::kF32, *device);
    {
      Tensor from = Tensor::Zeros({1000}, DType::kF32, *device);
      const auto ready = device->NewEvent();
      device->current_stream().Record(*ready);
      second->Wait(*ready);
      second->Copy(to.mutable_data(), from.data(), to.bytes(), CopyKind::kDeviceToDevice);
      from.storage()->RecordUse(*second);
    }
    EXPECT_EQ(to.ToHost<float>(), std::vector<float>(1000, 0.0F)) << seed;
  }
}

TEST(DirectAllocator, BudgetHoldsToTheByte) {
  const auto device = NewDeferredCpuDevice(1);
  device->allocator().SetDirect(true);
  device->allocator().SetBudget(1000);
  Tensor a = Tensor::Empty({249}, DType::kF32, *device);
  EXPECT_THROW(Tensor::Empty({3}, DType::kBF16, *device), OutOfMemory);
  EXPECT_NO_THROW(Tensor::Empty({2}, DType::kBF16, *device));
}

// Work on two streams in every order that a seed draws: without the wait, some seed must show it.
std::vector<float> CopyAcrossStreams(uint64_t seed, bool with_wait) {
  const auto device = NewDeferredCpuDevice(seed);
  const auto second = device->NewStream();
  const auto filled = device->NewEvent();
  const auto copied = device->NewEvent();
  Tensor from = Tensor::Empty({2}, DType::kF32, *device);
  Tensor to = Tensor::Empty({2}, DType::kF32, *device);
  from.SetZero();
  device->current_stream().Record(*filled);
  if (with_wait) second->Wait(*filled);
  second->Copy(to.mutable_data(), from.data(), to.bytes(), CopyKind::kDeviceToDevice);
  second->Record(*copied);
  device->current_stream().Wait(*copied);
  return to.ToHost<float>();
}

TEST(DeferredStreams, AWaitMakesItRightInEveryOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_THAT(CopyAcrossStreams(seed, true), ElementsAre(0, 0)) << seed;
  }
}

TEST(DeferredStreams, AMissingWaitShows) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) wrong += std::isnan(CopyAcrossStreams(seed, false)[0]);
  EXPECT_GT(wrong, 0);
}

TEST(DeferredStreams, NothingRunsBeforeSynchronisation) {
  const auto device = NewDeferredCpuDevice(1);
  Tensor t = Tensor::Empty({1}, DType::kF32, *device);
  t.SetZero();
  EXPECT_EQ(device->allocator().stats().system_allocations, 1);
  const float early = *static_cast<const float*>(t.data());
  device->Synchronize();
  EXPECT_EQ(*static_cast<const float*>(t.data()), 0.0F);
  (void)early;  // whatever the system's memory held
}

TEST(DeferredStreams, ABlockUsedByAnotherStreamIsNotReusedTooEarly) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto device = NewDeferredCpuDevice(seed);
    const auto second = device->NewStream();
    Tensor kept = Tensor::Empty({4}, DType::kF32, *device);
    {
      Tensor t = Tensor::Zeros({4}, DType::kF32, *device);
      const auto ready = device->NewEvent();
      device->current_stream().Record(*ready);
      second->Wait(*ready);
      second->Copy(kept.mutable_data(), t.data(), t.bytes(), CopyKind::kDeviceToDevice);
      t.storage()->RecordUse(*second);
    }
    Tensor reused = Tensor::Empty({4}, DType::kF32, *device);  // poisoned when handed out
    device->Synchronize();
    EXPECT_THAT(kept.ToHost<float>(), ElementsAre(0, 0, 0, 0)) << seed;
  }
}

TEST(DeferredStreams, WaitingForEachOtherIsAnError) {
  const auto device = NewDeferredCpuDevice(1);
  const auto a = device->NewEvent();
  const auto b = device->NewEvent();
  {
    const auto other = device->NewStream();
    // Recorded behind waits for each other.
    a->Synchronize();  // never recorded: no wait
    other->Record(*a);
    device->current_stream().Wait(*a);
    device->current_stream().Record(*b);
    other->Wait(*b);
    EXPECT_NO_THROW(device->Synchronize());
  }
}

TEST(Tensor, ViewsAndErrors) {
  Tensor t = Tensor::FromHost(std::vector<int32_t>{1, 2, 3, 4, 5, 6}, {3, 2}, CpuDevice(), "ids");
  EXPECT_THAT(t.Narrow(1, 2).ToHost<int32_t>(), ElementsAre(3, 4, 5, 6));
  EXPECT_EQ(t.Reshape({-1, 3}).shape(), (Shape{2, 3}));
  EXPECT_EQ(t.dim(-1), 2);
  EXPECT_THROW(t.Reshape({4, -1}), InvalidArgument);
  EXPECT_THROW(t.Narrow(2, 2), InvalidArgument);
  EXPECT_THROW(t.data<float>(), InvalidArgument);
  EXPECT_THROW(t.dim(2), InvalidArgument);
  EXPECT_THROW(Shape({int64_t{1} << 40, int64_t{1} << 40}), InvalidArgument);
  EXPECT_THROW(Tensor().data(), InvalidArgument);
  EXPECT_EQ(Tensor::Empty({0, 5}, DType::kF32, CpuDevice()).ToHost<float>().size(), 0U);
}

TEST(Tensor, ToHostFillsMemoryOfTheCallers) {
  const Tensor t = Tensor::FromHost(std::vector<float>{1, 2, 3, 4}, {4}, CpuDevice());
  std::vector<float> got(5, -1);
  t.Narrow(1, 3).ToHost(std::span<float>(got).subspan(1, 3));
  EXPECT_THAT(got, ElementsAre(-1, 2, 3, 4, -1));
  EXPECT_THROW(t.ToHost(std::span<float>(got)), InvalidArgument);
  std::vector<int32_t> ids(4);
  EXPECT_THROW(t.ToHost(std::span<int32_t>(ids)), InvalidArgument);
}

TEST(Tensor, CastFromRoundsToNearestEven) {
  // bf16 has steps of 2^-7 from 1 on.
  const Tensor f32 = Tensor::FromHost(
      std::vector<float>{1, 1 + 0x1p-8F, 1 + 0x3p-8F, 1 + 0x1.1p-8F, -2.5, 0}, {2, 3}, CpuDevice());
  Tensor bf16 = Tensor::Empty({6}, DType::kBF16, CpuDevice());
  bf16.CastFrom(f32);
  Tensor back = Tensor::Empty({3, 2}, DType::kF64, CpuDevice());
  back.CastFrom(bf16);
  EXPECT_THAT(back.ToHost<double>(), ElementsAre(1, 1, 1 + 0x1p-6, 1 + 0x1p-7, -2.5, 0));
}

TEST(Tensor, AddFromAddsInTheDTypeOfTheSum) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    SCOPED_TRACE(Name(dtype));
    Tensor sum = Tensor::Empty({2, 2}, dtype, CpuDevice());
    sum.CastFrom(Tensor::FromHost(std::vector<float>{1, 2, -3, 4}, {4}, CpuDevice()));
    Tensor bf16 = Tensor::Empty({4}, DType::kBF16, CpuDevice());
    bf16.CastFrom(Tensor::FromHost(std::vector<float>{0x1p-20F, 1, 3, -0.5F}, {4}, CpuDevice()));
    sum.AddFrom(bf16);
    Tensor got = Tensor::Empty({4}, DType::kF64, CpuDevice());
    got.CastFrom(sum);
    EXPECT_THAT(got.ToHost<double>(), ElementsAre(1 + 0x1p-20, 3, 0, 3.5));
  }
}

TEST(Tensor, AddFromRefusesWhatDoesNotFit) {
  const Tensor from = Tensor::Zeros({4}, DType::kF32, CpuDevice());
  EXPECT_THAT([&] { Tensor::Empty({5}, DType::kF32, CpuDevice()).AddFrom(from); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("add: f32 [4] into f32 [5]")));
  EXPECT_THROW(Tensor::Empty({4}, DType::kI32, CpuDevice()).AddFrom(from), InvalidArgument);
}

TEST(Tensor, CastFromRefusesWhatDoesNotFit) {
  const Tensor from = Tensor::Zeros({4}, DType::kF32, CpuDevice());
  const auto elsewhere = NewDeferredCpuDevice(1);
  EXPECT_THAT([&] { Tensor::Empty({5}, DType::kBF16, CpuDevice()).CastFrom(from); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("f32 [4] into bf16 [5]")));
  EXPECT_THROW(Tensor::Empty({4}, DType::kI32, CpuDevice()).CastFrom(from), InvalidArgument);
  EXPECT_THROW(Tensor::Empty({4}, DType::kBF16, *elsewhere).CastFrom(from), InvalidArgument);
  EXPECT_THROW(Tensor().CastFrom(from), InvalidArgument);
}

}  // namespace
}  // namespace pando
