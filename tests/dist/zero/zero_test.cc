// Zero against what a single process does without it (FlatParameters and AdamW), and the memory
// that it takes. Losses over all stages, shards and batches: tests/train/zero_train_test.cc.

#include "dist/zero/zero.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/cpu/cpu_device.h"
#include "engine/error.h"
#include "models/gpt.h"
#include "tests/dist/communicator/ranks.h"

namespace pando {
namespace {

constexpr int64_t kSamples = 6;
constexpr int64_t kLength = 8;
constexpr int64_t kSteps = 5;
constexpr int64_t kWidth = 32;

/// A GPT of two blocks with dropout, perhaps without gradients for its embedding and the first
/// block's attention.
struct Model {
  explicit Model(bool frozen = false)
      : gpt(registry.Root(), {.vocab_size = 61,
                              .context = kLength,
                              .layers = 2,
                              .heads = 2,
                              .width = kWidth,
                              .dropout = 0.1}) {
    for (Parameter* p : registry.parameters()) {
      const bool part =
          absl::StartsWith(p->name(), "w") || absl::StrContains(p->name(), "h.0.attn");
      if (frozen && part) p->set_requires_grad(false);
    }
  }

  /// The loss of `count` samples of a step, of which there are kSamples.
  Tensor Loss(int64_t step, int64_t first, int64_t count, Device& device) {
    std::vector<int32_t> tokens, targets;
    std::vector<int64_t> ids;
    for (int64_t s = first; s < first + count; ++s) {
      ids.push_back(step * kSamples + s);
      for (int64_t t = 0; t < kLength; ++t) {
        tokens.push_back(static_cast<int32_t>((step * 5 + s * 11 + t) % 61));
        targets.push_back((tokens.back() + 1) % 61);
      }
    }
    const StepContext context{.seed = 1,
                              .step = step,
                              .sample_ids = Tensor::FromHost(ids, {count}, device),
                              .training = true};
    return gpt.Loss(Tensor::FromHost(tokens, {count, kLength}, device),
                    Tensor::FromHost(targets, {count, kLength}, device), context,
                    1.0 / (kSamples * kLength));
  }

  ParameterRegistry registry;
  Gpt gpt;
};

struct Outcome {
  bool operator==(const Outcome&) const = default;
  std::vector<double> losses;
  std::vector<float> masters;
};

/// One process, all samples at once, without Zero.
Outcome WithoutZero(DType dtype, bool frozen) {
  Model model(frozen);
  FlatParameters flat(model.registry, dtype, CpuDevice());
  flat.Initialize(1);
  AdamW adamw({0, flat.layout().size()}, {}, CpuDevice());
  Outcome outcome;
  for (int64_t step = 0; step < kSteps; ++step) {
    flat.ClearGrads();
    const Tensor loss = model.Loss(step, 0, kSamples, CpuDevice());
    Backward(loss);
    flat.CompleteGrads();
    adamw.Step(flat.layout(), flat.masters(), flat.grads(), flat.values(), 1e-3, 1.0, 1);
    flat.MarkChanged();
    outcome.losses.push_back(loss.Item());
  }
  outcome.masters = flat.masters().ToHost<float>();
  return outcome;
}

/// The same as one rank, with `mine` samples from `first` on in each step, a half in each of two
/// micro-steps (or, if it is alone, in one).
Outcome WithZero(const ZeroOptions& options, bool frozen, bool units, Communicator* communicator,
                 Device& device, int64_t first, int64_t mine) {
  Model model(frozen);
  Zero zero(model.registry, units ? model.gpt.units() : std::vector<Unit*>{}, options, communicator,
            device);
  zero.Initialize(1);
  Outcome outcome;
  for (int64_t step = 0; step < kSteps; ++step) {
    zero.BeginStep();
    double sum = 0;
    const auto micro_step = [&](int64_t from, int64_t count, bool last) {
      if (count == 0) return zero.EmptyMicroStep(last);
      Tensor loss;
      zero.MicroStep(
          [&] {
            loss = model.Loss(step, from, count, device);
            Backward(loss);
          },
          last);
      sum += loss.Item();
    };
    const int64_t half = communicator == nullptr ? 0 : mine / 2;
    if (communicator != nullptr) micro_step(first, half, false);
    micro_step(first + half, mine - half, true);
    zero.FinishGradients();
    zero.OptimizerStep(1e-3, 1.0, 1);
    zero.AllReduce({&sum, 1});
    outcome.losses.push_back(sum);
  }
  outcome.masters = zero.masters().ToHost<float>();
  return outcome;
}

/// On three ranks, of which the last has no samples and the second only in one of two micro-steps;
/// masters of all ranks one after the other.
Outcome OnThreeRanks(int stage, bool frozen, bool units, bool deferred) {
  const std::vector<int64_t> samples = {5, 1, 0};
  std::vector<Outcome> outcomes(3);
  MemoryStore store;
  OnThreads(3, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const auto own = deferred ? NewDeferredCpuDevice(static_cast<uint64_t>(rank) + 1) : nullptr;
    Device& device = deferred ? *own : CpuDevice();
    const auto c = NewGlooCommunicator(TestGloo(store, rank, 3), device);
    try {
      outcomes[r] = WithZero({.stage = stage, .shares = {0.2, 0.7, 0.1}}, frozen, units, c.get(),
                             device, rank == 0 ? 0 : samples[0], samples[r]);
      c->Barrier();
    } catch (const std::exception& e) {
      c->Abort(e.what());
      throw;
    }
  });
  for (const Outcome& o : outcomes) EXPECT_EQ(o.losses, outcomes[0].losses);
  Outcome all = outcomes[0];
  for (size_t r = 1; r < 3 && stage > 0; ++r) {
    all.masters.insert(all.masters.end(), outcomes[r].masters.begin(), outcomes[r].masters.end());
  }
  return all;
}

/// Sums in another order, in f32, over few steps. Biases of attention's keys are left out: a
/// softmax doesn't feel them, so their gradients are rounding alone, which Adam scales up to whole
/// steps.
void ExpectClose(const Outcome& got, const Outcome& want) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-6 * want.losses[i]) << "step " << i;
  }
  ASSERT_EQ(got.masters.size(), want.masters.size());
  const Model model;
  const FlatLayout layout(model.registry.parameters());
  for (const FlatLayout::Entry& e : layout.entries()) {
    float most = 0;
    for (int64_t at = e.offset; at < e.end(); ++at) {
      const bool key_bias =
          absl::EndsWith(e.parameter->name(), "attn.c_attn.bias") && (at - e.offset) / kWidth == 1;
      const auto i = static_cast<size_t>(at);
      if (!key_bias) most = std::max(most, std::abs(got.masters[i] - want.masters[i]));
    }
    EXPECT_LE(most, 1e-5F) << e.parameter->name();
  }
}

class ZeroTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, ZeroTest, testing::Range(0, 4));

TEST_P(ZeroTest, OneRankIsTheSameBitsAsWithoutZero) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool frozen : {false, true}) {
      EXPECT_EQ(WithZero({.stage = GetParam(), .dtype = dtype}, frozen, true, nullptr, CpuDevice(),
                         0, kSamples),
                WithoutZero(dtype, frozen))
          << Name(dtype);
    }
  }
}

TEST_P(ZeroTest, FrozenParametersStay) {
  const Outcome want = WithoutZero(DType::kF32, true);
  const Outcome got = OnThreeRanks(GetParam(), true, true, false);
  ExpectClose(got, want);
  Model model(true);
  FlatParameters first(model.registry, DType::kF32, CpuDevice());
  first.Initialize(1);
  const std::vector<float> before = first.masters().ToHost<float>();
  for (const FlatLayout::Entry& e : first.layout().entries()) {
    const bool same = std::equal(before.begin() + e.offset, before.begin() + e.end(),
                                 got.masters.begin() + e.offset);
    EXPECT_EQ(same, !e.parameter->requires_grad()) << e.parameter->name();
  }
}

TEST_P(ZeroTest, WithoutUnitsTheModelIsGatheredAsOne) {
  ExpectClose(OnThreeRanks(GetParam(), false, false, false), WithoutZero(DType::kF32, false));
}

// Nothing runs before somebody waits for it, and new memory is NaN: a collective that reads or
// writes too early, or bytes released too early, would show.
TEST_P(ZeroTest, DeferredStreamsGiveTheSameBits) {
  const Outcome want = OnThreeRanks(GetParam(), false, true, false);
  EXPECT_EQ(OnThreeRanks(GetParam(), false, true, true), want);
}

// The most that is in use, from the first byte on. Micro-steps are empty, so that activations are
// not counted.
TEST_P(ZeroTest, NeverTakesMoreThanTheFormulaAndTheUnitsInUse) {
  const int stage = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    MemoryStore store;
    OnThreads(2, [&](int rank) {
      const auto device = NewDeferredCpuDevice(1);
      device->allocator().SetDirect(true);  // no larger blocks than asked for
      const auto c = NewGlooCommunicator(TestGloo(store, rank, 2), *device);
      ParameterRegistry registry;
      Gpt gpt(registry.Root(),
              {.vocab_size = 3000, .context = 16, .layers = 4, .heads = 2, .width = 64});
      Zero zero(registry, gpt.units(), {.stage = stage, .shares = {0.75, 0.25}, .dtype = dtype},
                c.get(), *device);
      const auto peak = [&] { return device->allocator().stats().peak_in_use; };
      int64_t embedding = zero.schedule().unit(0).interval.size(), block = 0;
      for (int u = 1; u < zero.schedule().units(); ++u) {
        block = std::max(block, zero.schedule().unit(u).interval.size());
      }
      ASSERT_GT(embedding, block);
      const int64_t state = ZeroStateBytes(stage, dtype, zero.layout().size(), zero.own().size());
      // To be allocated, buffers of units are there one at a time.
      const int64_t most = stage < 2 ? 0 : embedding * int64_t{sizeof(float)};
      zero.Initialize(1);
      const int64_t piece = embedding * int64_t{sizeof(float)};  // on its way from the host
      const int64_t numbers = 4096;                              // flags and fingerprints
      EXPECT_LE(peak(), state + std::max(most, piece) + numbers);

      device->allocator().ResetPeak();
      for (int step = 0; step < 2; ++step) {
        zero.BeginStep();
        for (const bool last : {false, false, true}) zero.EmptyMicroStep(last);
        zero.FinishGradients();
        zero.OptimizerStep(1e-3, 1.0, 1);
      }
      device->Synchronize();
      // The embedding, whose gradients are complete at the end; one unit's that come together and
      // two that are on their way; values of this unit and the next.
      const int64_t grads = stage < 2 ? 0 : embedding + 3 * block;
      const int64_t values = stage < 3 ? 0 : embedding + 2 * block;
      EXPECT_LE(peak(), state + grads * int64_t{sizeof(float)} + values * SizeOf(dtype) + numbers);
      c->Barrier();
    });
  }
}

TEST(Zero, RanksMustAgreeOnTheOptimizer) {
  EXPECT_THROW(OnRanks(2,
                       [](Communicator& c) {
                         Model model;
                         ZeroOptions options;
                         if (c.rank() == 1) options.adamw.beta2 = 0.99;
                         const Zero zero(model.registry, model.gpt.units(), options, &c,
                                         CpuDevice());
                       }),
               InvalidArgument);
}

}  // namespace
}  // namespace pando
