// The training step as a whole: what the cut into micro-batches, recompute and the device's order
// of work may not change, what is not allocated, and how it fails.
#include "train/train_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/allocator.h"
#include "engine/error.h"
#include "ops/cpu/onednn_matmul.h"
#include "tests/train/tiny_gpt.h"

namespace pando {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const TinyOptions kVariants[] = {
    {.dtype = DType::kF32, .recompute = false, .micro_batches = {5, 4, 3}},
    {.dtype = DType::kF32, .recompute = true, .micro_batches = {5, 4, 3}},
    {.dtype = DType::kBF16, .recompute = false, .micro_batches = {5, 4, 3}},
    {.dtype = DType::kBF16, .recompute = true, .micro_batches = {5, 4, 3}}};

// Sums in another order, and nothing else, dropout included: f32 rounding, 6e-8, over 20 steps.
TEST(TrainStep, MicroBatchesChangeNothingButRounding) {
  const std::vector<double> whole = TinyGpt({.micro_batches = {12}}).Losses(20);
  EXPECT_LT(whole.back(), whole.front() - 0.2);
  for (const std::vector<int64_t>& cut :
       {std::vector<int64_t>{6, 6}, {5, 4, 3}, std::vector<int64_t>(12, 1)}) {
    const std::vector<double> losses = TinyGpt({.micro_batches = cut}).Losses(20);
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(losses[i], whole[i], 1e-6 * whole[i]) << "step " << i << " of " << cut.size();
    }
  }
}

// So that the test above means something: its losses depend on dropout.
TEST(TrainStep, DropoutIsOn) {
  const double with = TinyGpt({.dropout = 0.1}).Losses(1)[0];
  const double without = TinyGpt({.dropout = 0}).Losses(1)[0];
  EXPECT_GT(std::abs(with - without), 1e-4);
}

TEST(TrainStep, RecomputeIsBitIdentical) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TinyGpt kept({.dtype = dtype, .micro_batches = {5, 4, 3}});
    TinyGpt recomputed({.dtype = dtype, .recompute = true, .micro_batches = {5, 4, 3}});
    EXPECT_EQ(kept.Losses(20), recomputed.Losses(20)) << Name(dtype);
    EXPECT_EQ(kept.State(), recomputed.State()) << Name(dtype);
  }
}

TEST(TrainStep, NothingIsAllocatedAfterTheSecondStep) {
  for (const TinyOptions& options : kVariants) {
    SCOPED_TRACE(std::string(Name(options.dtype)) + (options.recompute ? ", recomputed" : ""));
    TinyGpt gpt(options);
    gpt.Losses(2);
    const int64_t allocations = CpuDevice().allocator().stats().system_allocations;
    const int64_t created = bounded_cache_creations;
    const int64_t primitives = OneDnnMatmulCacheStats().creations;
    const int64_t in_use = CpuDevice().allocator().stats().in_use;
    for (int64_t step = 2; step < 12; ++step) gpt.Run(step);
    EXPECT_EQ(CpuDevice().allocator().stats().system_allocations, allocations);
    EXPECT_EQ(CpuDevice().allocator().stats().in_use, in_use);
    EXPECT_EQ(bounded_cache_creations, created);
    EXPECT_EQ(OneDnnMatmulCacheStats().creations, primitives);
  }
}

TEST(TrainStep, DeferredStreamsGiveTheSameNumbers) {
  for (const TinyOptions& options : kVariants) {
    SCOPED_TRACE(std::string(Name(options.dtype)) + (options.recompute ? ", recomputed" : ""));
    const TinyPass want(options, CpuDevice(), 3);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const std::unique_ptr<Device> device = NewDeferredCpuDevice(seed);
      EXPECT_EQ(TinyPass(options, *device, 3).losses, want.losses) << seed;
      EXPECT_TRUE(TinyPass(options, *device, 3) == want) << seed;
    }
  }
}

/// Whether some order of the work shows that the wait is missing.
bool IsMissed(int64_t wait, const TinyOptions& options, const TinyPass& want) {
  return IsMissed(200, want, [&](uint64_t seed) {
    const std::unique_ptr<Device> device = NewDeferredCpuDevice(seed, wait);
    return TinyPass(options, *device, 1);
  });
}

// Of one step of 5 micro-batches: that uploads begin when their places are free at all (1), that
// each is complete before it is computed with (5), and that the places of the first three are read
// before they are filled again (3). Leaving out any of these must show, and there are no others.
TEST(TrainStep, EveryWaitIsNeeded) {
  const TinyOptions options{.micro_batches = {3, 3, 2, 2, 2}};
  const TinyPass want(options, CpuDevice(), 1);
  constexpr int64_t kWaits = 1 + 5 + 3;
  for (int64_t wait = 0; wait < kWaits; ++wait) {
    EXPECT_TRUE(IsMissed(wait, options, want)) << "wait " << wait;
  }
  EXPECT_FALSE(IsMissed(kWaits, options, want));
}

/// The message of the NonFinite that the step throws; "" if none. The state must be as before.
std::string NonFiniteOf(TinyGpt& gpt, int64_t step) {
  const auto before = gpt.State();
  const int64_t steps = gpt.step().optimizer().steps();
  std::string message;
  try {
    gpt.Run(step);
  } catch (const NonFinite& e) {
    message = e.what();
  }
  const auto bytes = [](const std::vector<std::vector<float>>& state) {
    std::string all;
    for (const auto& v : state) {
      all.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
    }
    return all;
  };
  EXPECT_EQ(bytes(before), bytes(gpt.State()));
  EXPECT_EQ(gpt.step().optimizer().steps(), steps);
  return message;
}

TEST(NonFiniteStep, NamesTheParameter) {
  for (const TinyOptions& options : kVariants) {
    TinyGpt gpt(options);
    gpt.Losses(2);
    gpt.Fill("h.1.mlp.c_fc.bias", std::numeric_limits<float>::infinity());
    EXPECT_THAT(NonFiniteOf(gpt, 2),
                AllOf(HasSubstr("step 2: "), HasSubstr("parameter h.1.mlp.c_fc.bias")));
  }
}

// Finite parameters whose product is not: 32 weights of 2e38 on normalised values that don't sum to
// zero with a bias of 1. The head's loss is bad too, but the projection was the first.
TEST(NonFiniteStep, NamesTheFirstBadActivation) {
  for (const TinyOptions& options : kVariants) {
    SCOPED_TRACE(std::string(Name(options.dtype)) + (options.recompute ? ", recomputed" : ""));
    TinyGpt gpt(options);
    gpt.Losses(2);
    gpt.Fill("h.1.ln_2.bias", 1.0F);
    gpt.Fill("h.1.mlp.c_fc.weight", 2e38F);
    EXPECT_THAT(NonFiniteOf(gpt, 2),
                AllOf(HasSubstr("step 2: "), HasSubstr("the output of"), HasSubstr(" in h.1"),
                      HasSubstr("learning rate"), Not(HasSubstr("parameter"))));
  }
}

/// Makes the gradient of one weight overflow f32, and nothing else: its input is huge, itself is
/// zero, and what comes back is large because logits are.
void MakeGradientOverflow(TinyGpt& gpt) {
  gpt.Fill("h.1.mlp.c_fc.bias", 1e38F);
  gpt.Fill("h.1.mlp.c_proj.weight", 0.0F);
  gpt.Fill("ln_f.weight", 1e6F);
}

TEST(NonFiniteStep, IsFoundInTheGradientToo) {
  TinyGpt gpt({.dropout = 0});
  MakeGradientOverflow(gpt);
  EXPECT_THAT(NonFiniteOf(gpt, 0), AllOf(HasSubstr("the gradient of h.1.mlp.c_proj.weight"),
                                         Not(HasSubstr("loss nan")), Not(HasSubstr("loss inf"))));
}

TEST(NonFiniteStep, LeavesTheStepReady) {
  TinyGpt gpt({.micro_batches = {5, 4, 3}}), untouched({.micro_batches = {5, 4, 3}});
  const std::vector<double> want = untouched.Losses(4);
  gpt.Losses(2);
  const FlatLayout::Entry& last = gpt.flat().layout().entries().back();
  const std::vector<float> bias =
      gpt.flat().masters().Narrow(last.offset, last.end() - last.offset).ToHost<float>();
  gpt.Fill("ln_f.bias", NAN);
  EXPECT_NE(NonFiniteOf(gpt, 2), "");
  gpt.flat().WriteMasters(last.offset, bias);
  gpt.flat().ValuesFromMasters();
  EXPECT_EQ(gpt.Run(2).loss, want[2]);
  EXPECT_EQ(gpt.Run(3).loss, want[3]);
}

// A power of two changes no bit of what it multiplies, within the range of the dtype.
TEST(LossScaledStep, GivesTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TinyGpt plain({.dtype = dtype, .micro_batches = {5, 4, 3}});
    TinyGpt scaled({.dtype = dtype,
                    .micro_batches = {5, 4, 3},
                    .loss_scale = LossScaleOptions{.initial = 1024, .growth_interval = 3}});
    EXPECT_EQ(plain.Losses(8), scaled.Losses(8)) << Name(dtype);
    EXPECT_EQ(plain.State(), scaled.State()) << Name(dtype);
    EXPECT_EQ(scaled.step().loss_scale()->value(), 4096);  // doubled after steps 3 and 6
    EXPECT_EQ(scaled.step().loss_scale()->good_steps(), 2);
  }
}

// 2^140 overflows even f32: steps are skipped until the scale fits, and from then on the run is one
// that started there. But for rounding: 1 / scale is near the end of f32's range too.
TEST(LossScaledStep, SkipsStepsUntilNothingOverflows) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TinyGpt gpt({.dtype = dtype, .loss_scale = LossScaleOptions{.initial = 0x1p140}});
    const auto before = gpt.State();
    double scale = 0x1p140;
    int64_t step = 0;
    StepResult result = gpt.Run(step);
    const double first_loss = result.loss;
    for (; result.skipped; result = gpt.Run(++step), scale /= 2) {
      EXPECT_EQ(result.loss_scale, scale);
      EXPECT_TRUE(std::isfinite(result.loss));
      EXPECT_EQ(gpt.State(), before);
      ASSERT_LT(step, 40);
    }
    EXPECT_GT(step, 3);
    EXPECT_EQ(result.loss_scale, scale);
    EXPECT_EQ(gpt.step().optimizer().steps(), 1);
    TinyGpt plain({.dtype = dtype});
    EXPECT_EQ(plain.Run(step).loss, result.loss);
    const double next = plain.Run(step + 1).loss;
    EXPECT_NEAR(next, gpt.Run(step + 1).loss, 1e-6 * next);
    EXPECT_EQ(TinyGpt({.dtype = dtype}).Run(0).loss, first_loss);
  }
}

TEST(LossScaledStep, ThrowsWhereASmallerScaleCantHelp) {
  TinyGpt loss({.loss_scale = LossScaleOptions{.initial = 8}});
  loss.Fill("h.1.mlp.c_fc.bias", std::numeric_limits<float>::infinity());
  EXPECT_THAT(NonFiniteOf(loss, 0), HasSubstr("parameter h.1.mlp.c_fc.bias"));
  EXPECT_EQ(loss.step().loss_scale()->value(), 8);
  TinyGpt gradient({.dropout = 0, .loss_scale = LossScaleOptions{.initial = 4}});
  MakeGradientOverflow(gradient);
  EXPECT_TRUE(gradient.Run(0).skipped);
  EXPECT_TRUE(gradient.Run(1).skipped);
  EXPECT_THAT(NonFiniteOf(gradient, 2), HasSubstr("h.1.mlp.c_proj.weight"));
}

TEST(TrainStep, GoesOnAfterOutOfMemory) {
  for (const bool recompute : {false, true}) {
    const TinyOptions options{.recompute = recompute, .micro_batches = {6, 6}};
    const std::vector<double> want = TinyGpt(options).Losses(4);
    const std::unique_ptr<Device> device = NewDeferredCpuDevice(1);
    TinyGpt gpt(options, *device);
    EXPECT_EQ(gpt.Run(0).loss, want[0]);
    EXPECT_EQ(gpt.Run(1).loss, want[1]);
    // Whatever is allocated first finds no room, then only what comes later.
    Allocator& allocator = device->allocator();
    const int64_t needed = allocator.stats().reserved;
    for (const int64_t hold : {int64_t{0}, int64_t{256} << 10}) {
      allocator.ReleaseCached();
      std::vector<Tensor> holders;
      allocator.SetBudget(allocator.stats().reserved);
      try {  // all that is free but the last few
        while (true) holders.push_back(Tensor::Empty({1024}, DType::kF32, *device, "holder"));
      } catch (const OutOfMemory&) {
        for (int64_t left = hold; left > 0; left -= 4096) holders.pop_back();
      }
      EXPECT_THROW(gpt.Run(2), OutOfMemory);
      holders.clear();
      allocator.SetBudget(int64_t{1} << 30);
    }
    EXPECT_EQ(gpt.Run(2).loss, want[2]);
    EXPECT_EQ(gpt.Run(3).loss, want[3]);
    EXPECT_LE(allocator.stats().reserved, needed);
  }
}

TEST(TrainStep, WithoutTargetsChangesNothing) {
  TinyGpt gpt({});
  gpt.Losses(1);
  const auto before = gpt.State();
  const std::vector<int32_t> tokens(2 * TinyGpt::kLength, 1), none(tokens.size(), -1);
  const StepResult result = gpt.step().Run({12, 2, TinyGpt::kLength, tokens, none}, {2}, 1, 1e-3);
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(gpt.State(), before);
  EXPECT_EQ(gpt.step().optimizer().steps(), 1);
}

}  // namespace
}  // namespace pando
