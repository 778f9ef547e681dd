#include "engine/cpu/slowed_device.h"

#include <gtest/gtest.h>

#include "engine/allocator.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "engine/tensor.h"

namespace pando {
namespace {

/// Work for the processor, and its result.
std::vector<float> Compute(Device& device) {
  Tensor sum = Tensor::Zeros({1 << 16}, DType::kF32, device);
  const Tensor one = Tensor::FromHost(std::vector<float>(1 << 16, 0.5F), {1 << 16}, device, "one");
  for (int i = 0; i < 200; ++i) sum.AddFrom(one);
  return sum.ToHost<float>();
}

TEST(SlowedDevice, TakesItsTimeAndComputesTheSame) {
  SetNumThreads(1);
  SlowedStats stats;
  const auto device = NewSlowedDevice({.speed = 0.5, .jitter = 0.1, .seed = 3}, &stats);
  EXPECT_EQ(Compute(*device), std::vector<float>(1 << 16, 100.0F));
  EXPECT_GT(stats.used, 0);
  // Twice the processor's time, but for the jitter, of which many kernels' is less than one's.
  EXPECT_NEAR(stats.emulated, 2 * stats.used, 0.1 * 2 * stats.used);
  EXPECT_NE(stats.emulated, 2 * stats.used);
  EXPECT_GE(stats.overrun, 0);
}

TEST(SlowedDevice, WithoutJitterItIsExact) {
  SetNumThreads(1);
  SlowedStats stats;
  const auto device = NewSlowedDevice({.speed = 0.25}, &stats);
  Compute(*device);
  EXPECT_NEAR(stats.emulated, 4 * stats.used, 1e-9 * stats.used);
}

TEST(SlowedDevice, RefusesNonsense) {
  EXPECT_THROW(NewSlowedDevice({.speed = 0}), InvalidArgument);
  EXPECT_THROW(NewSlowedDevice({.speed = 1.5}), InvalidArgument);
  EXPECT_THROW(NewSlowedDevice({.speed = -1}), InvalidArgument);
  EXPECT_THROW(NewSlowedDevice({.speed = 1, .jitter = 1}), InvalidArgument);
}

}  // namespace
}  // namespace pando
