// A small GPT trained on the emulated cuda:0: it follows the CPU, in every order of streams and
// threads, allocates nothing once it runs, and shows a missing wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/allocator.h"
#include "engine/bounded_cache.h"
#include "engine/cuda/cuda_device.h"
#include "engine/error.h"
#include "tests/emulated_cuda/emulated_cuda.h"
#include "tests/train/tiny_gpt.h"

namespace pando {
namespace {

using ::testing::HasSubstr;

/// cuda:0, whose memory is NaN wherever nothing was written.
Device& Cuda() {
  Device& device = CudaDevice(0);
  device.allocator().SetPoison(true);
  return device;
}

class TrainCudaTest : public testing::Test {
 protected:
  ~TrainCudaTest() override { emulated_cuda::Configure({}); }
};

void ExpectFollows(const std::vector<double>& got, const std::vector<double>& want,
                   double relative) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], relative * want[i]) << "step " << i;
  }
}

constexpr int64_t kSteps = 50;

TEST_F(TrainCudaTest, F32FollowsTheCpu) {
  const TinyOptions options{.micro_batches = {5, 4, 3}};
  const std::vector<double> want = TinyGpt(options).Losses(kSteps);
  const std::vector<double> got = TinyGpt(options, Cuda()).Losses(kSteps);
  EXPECT_LT(want.back(), want.front() - 0.3);  // something is learnt
  ExpectFollows(got, want, 1e-6);              // f32 rounding, 6e-8, over 50 steps
}

// bf16 keeps 8 bits: each rounding errs by up to 2^-9, and CPU and GPU round at different places
// (fused kernels, order of sums). Losses are means over 126 targets, which evens most of it out.
TEST_F(TrainCudaTest, Bf16FollowsTheCpu) {
  const TinyOptions options{.dtype = DType::kBF16};
  ExpectFollows(TinyGpt(options, Cuda()).Losses(kSteps), TinyGpt(options).Losses(kSteps), 2e-3);
}

// f16 keeps 11 bits, an eighth of bf16's error; the CPU has no f16, so the reference is f32.
TEST_F(TrainCudaTest, F16FollowsTheCpusF32) {
  TinyGpt gpt({.dtype = DType::kF16}, Cuda());
  ExpectFollows(gpt.Losses(kSteps), TinyGpt({}).Losses(kSteps), 2.5e-4);
  ASSERT_NE(gpt.step().loss_scale(), nullptr);
  EXPECT_EQ(gpt.step().optimizer().steps(), kSteps);  // 2^16 is not too much here
}

TEST_F(TrainCudaTest, F16FindsItsLossScale) {
  TinyGpt gpt({.dtype = DType::kF16,
               .loss_scale = LossScaleOptions{.initial = 0x1p34, .growth_interval = 3}},
              Cuda());
  int64_t step = 0;
  const auto before = gpt.State();
  while (gpt.Run(step).skipped) {
    EXPECT_EQ(gpt.State(), before);
    ASSERT_LT(++step, 20);
  }
  EXPECT_GT(step, 3);
  // It doubles when it should, overflows again, and goes on.
  int64_t skipped = 0;
  for (int64_t i = 1; i <= 8; ++i) {
    const StepResult result = gpt.Run(step + i);
    EXPECT_TRUE(std::isfinite(result.loss));
    skipped += result.skipped;
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 5);
  for (const auto& values : gpt.State()) {
    for (const float v : values) ASSERT_TRUE(std::isfinite(v));
  }
}

const TinyOptions kVariants[] = {
    {.dtype = DType::kF32, .micro_batches = {5, 4, 3}},
    {.dtype = DType::kBF16, .micro_batches = {5, 4, 3}},
    {.dtype = DType::kBF16, .recompute = true, .micro_batches = {5, 4, 3}},
    {.dtype = DType::kF16, .micro_batches = {5, 4, 3}}};

std::string NameOf(const TinyOptions& options) {
  return std::string(Name(options.dtype)) + (options.recompute ? ", recomputed" : "");
}

// Two runs of the same seed among them.
TEST_F(TrainCudaTest, EveryOrderOfStreamsAndThreadsGivesTheSameBits) {
  for (const TinyOptions& options : kVariants) {
    SCOPED_TRACE(NameOf(options));
    emulated_cuda::Configure({.seed = 1});
    const TinyPass want(options, Cuda(), 2);
    for (const uint64_t seed : {1, 2, 3, 4}) {
      emulated_cuda::Configure({.seed = seed});
      EXPECT_TRUE(TinyPass(options, Cuda(), 2) == want) << seed;
    }
  }
}

// Every tensor ends at a page that can't be touched: no kernel reads or writes beyond its own.
TEST_F(TrainCudaTest, ExactMemoryIsEnough) {
  for (const TinyOptions& options : kVariants) {
    SCOPED_TRACE(NameOf(options));
    const TinyPass want(options, Cuda(), 2);
    Cuda().allocator().SetDirect(true);
    EXPECT_TRUE(TinyPass(options, Cuda(), 2) == want);
    Cuda().allocator().SetDirect(false);
  }
}

TEST_F(TrainCudaTest, RecomputeIsBitIdentical) {
  TinyOptions options{.micro_batches = {6, 6}};
  const TinyPass kept(options, Cuda(), 3);
  options.recompute = true;
  EXPECT_TRUE(TinyPass(options, Cuda(), 3) == kept);
}

TEST_F(TrainCudaTest, NothingIsAllocatedOrMadeAfterTheSecondStep) {
  for (const TinyOptions& options : kVariants) {
    SCOPED_TRACE(NameOf(options));
    TinyGpt gpt(options, Cuda());
    gpt.Losses(2);
    const emulated_cuda::Counters before = emulated_cuda::GetCounters();
    const int64_t cached = bounded_cache_creations;
    const int64_t in_use = Cuda().allocator().stats().in_use;
    for (int64_t step = 2; step < 6; ++step) gpt.Run(step);
    const emulated_cuda::Counters after = emulated_cuda::GetCounters();
    EXPECT_GT(after.launches, before.launches);
    EXPECT_EQ(after.device_allocations, before.device_allocations);
    EXPECT_EQ(after.host_allocations, before.host_allocations);
    EXPECT_EQ(after.streams, before.streams);
    EXPECT_EQ(after.events, before.events);
    EXPECT_EQ(after.library_objects, before.library_objects);
    EXPECT_EQ(bounded_cache_creations, cached);
    EXPECT_EQ(Cuda().allocator().stats().in_use, in_use);
  }
}

/// Whether some order of the work shows that the wait is missing.
bool IsMissed(int64_t wait, const TinyOptions& options, const TinyPass& want) {
  return IsMissed(40, want, [&](uint64_t seed) {
    emulated_cuda::Configure({.seed = seed, .dropped_wait = wait});
    return TinyPass(options, Cuda(), 1);
  });
}

// The waits of one step of five micro-batches, as tests/train/train_step_test.cc counts them.
TEST_F(TrainCudaTest, EveryWaitIsNeeded) {
  const TinyOptions options{.micro_batches = {3, 3, 2, 2, 2}};
  const TinyPass want(options, Cuda(), 1);
  constexpr int64_t kWaits = 1 + 5 + 3;
  for (int64_t wait = 0; wait < kWaits; ++wait) {
    EXPECT_TRUE(IsMissed(wait, options, want)) << "wait " << wait;
  }
  emulated_cuda::Configure({.seed = 1, .dropped_wait = kWaits});
  EXPECT_TRUE(TinyPass(options, Cuda(), 1) == want);
}

TEST_F(TrainCudaTest, NonFiniteNamesTheTensor) {
  TinyGpt gpt({.dtype = DType::kBF16}, Cuda());
  gpt.Losses(1);
  gpt.Fill("h.1.mlp.c_fc.bias", INFINITY);
  EXPECT_THAT([&] { gpt.Run(1); },
              testing::ThrowsMessage<NonFinite>(HasSubstr("parameter h.1.mlp.c_fc.bias")));
}

}  // namespace
}  // namespace pando
