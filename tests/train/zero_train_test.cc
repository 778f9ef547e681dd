// Training over several ranks, as threads: whatever the stage, the shards and the batches of each,
// losses are those of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/dist/communicator/ranks.h"
#include "tests/fewer_cases.h"
#include "tests/train/tiny_gpt.h"

namespace pando {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 50;

/// Where the build is slow, a few of all combinations.
bool Few() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#else
  return FewerCases();
#endif
}

/// Losses of all steps; ranks must agree on them.
std::vector<double> LossesOver(int ranks, const TinyOptions& options, int64_t steps) {
  std::vector<std::vector<double>> losses(static_cast<size_t>(ranks));
  OnRanks(ranks, [&](Communicator& c) {
    TinyGpt gpt(options, CpuDevice(), &c);
    losses[static_cast<size_t>(c.rank())] = gpt.Losses(steps);
    gpt.flat().CheckReplicas();
  });
  for (const auto& of_rank : losses) EXPECT_EQ(of_rank, losses[0]);
  return losses[0];
}

std::vector<std::vector<double>> SharesFor(int ranks) {
  if (ranks == 1) return {{}};
  const auto n = static_cast<size_t>(ranks);
  std::vector<double> uneven(n, 0.01), empty(n, 1);
  uneven[n / 2] = 1;
  empty[0] = 0;
  if (n > 4) empty[n - 1] = 0;
  return {{}, uneven, empty};
}

/// Even; uneven; and so that a rank has nothing in some micro-steps, or in all.
std::vector<BatchPlan> PlansFor(int ranks, int stage) {
  const auto n = static_cast<size_t>(ranks);
  std::vector<int64_t> uneven(n, 1), some(n, 0);
  uneven[0] = 5;
  some[n - 1] = 3;
  some[0] = 1;
  std::vector<BatchPlan> plans = {SpreadBatch(TinyGpt::kSamples, std::vector<int64_t>(n, 2)),
                                  SpreadBatch(TinyGpt::kSamples, uneven),
                                  SpreadBatch(TinyGpt::kSamples, some)};
  if (stage < 2) {  // numbers of micro-steps of their own: 1 x 2 for all, and the rest for one
    BatchPlan own;
    own.ranks.assign(n, {2, 1, 1});
    own.ranks[n / 2] = {3, (TinyGpt::kSamples - static_cast<int64_t>(n) + 3) / 3, 0};
    RankBatch& most = own.ranks[n / 2];
    most.last_micro_batch =
        TinyGpt::kSamples - static_cast<int64_t>(n) + 1 - (most.micro_steps - 1) * 3;
    plans.push_back(own);
  }
  return plans;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double relative) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], relative * want[i]) << "step " << i;
  }
}

class ZeroTrain : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, ZeroTrain, testing::Range(0, 4));

// Dropout is on. Sums in another order, and nothing else: f32 rounds by 6e-8, and 50 steps carry it
// on (measured: 3e-7).
TEST_P(ZeroTrain, LossesOfOneProcess) {
  const int stage = GetParam();
  const std::vector<double> want = TinyGpt({}).Losses(kSteps);
  for (const int ranks : Few() ? std::vector<int>{3} : std::vector<int>{1, 2, 3, 4, 7}) {
    for (const auto& shares : SharesFor(ranks)) {
      if (stage == 0 && !shares.empty()) continue;  // nothing is sharded
      for (const BatchPlan& plan : PlansFor(ranks, stage)) {
        SCOPED_TRACE(absl::StrCat("stage ", stage, ", ", ranks, " ranks, ", shares.size(),
                                  " shares, ", plan.ranks[0].micro_batch, " samples at rank 0"));
        plan.Check(stage);
        TinyOptions options{.zero = {.stage = stage, .shares = shares}, .plan = plan};
        const int64_t steps = Few() ? 5 : kSteps;
        const auto got = LossesOver(ranks, options, steps);
        ExpectNear(got, {want.begin(), want.begin() + steps}, 1e-6);
      }
    }
  }
}

TEST_P(ZeroTrain, RunsAreBitIdentical) {
  const BatchPlan plan = SpreadBatch(TinyGpt::kSamples, {5, 1, 0});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool overlap : {true, false}) {
      for (const bool recompute : {true, false}) {
        const TinyOptions options{
            .dtype = dtype,
            .recompute = recompute,
            .zero = {.stage = GetParam(), .shares = {0.2, 0.7, 0.1}, .overlap = overlap},
            .plan = plan};
        TinyOptions plain = options;
        plain.zero.overlap = true;
        plain.recompute = false;
        EXPECT_EQ(LossesOver(3, options, 10), LossesOver(3, plain, 10));
      }
    }
  }
}

// bf16 rounds to 2^-9 at every operation, and gradients are summed in another order.
TEST_P(ZeroTrain, InBFloat16) {
  const std::vector<double> want = TinyGpt({.dtype = DType::kBF16}).Losses(kSteps);
  const TinyOptions options{.dtype = DType::kBF16,
                            .zero = {.stage = GetParam(), .shares = {0.5, 0.3, 0.2}},
                            .plan = SpreadBatch(TinyGpt::kSamples, {4, 2, 1})};
  ExpectNear(LossesOver(3, options, kSteps), want, 1e-3);
}

TEST_P(ZeroTrain, SharedLossScale) {
  // Overflows for all where it does for one, and ends up where one process ends up.
  TinyOptions options{.loss_scale = LossScaleOptions{.initial = 0x1p140, .growth_interval = 3}};
  const std::vector<double> want = TinyGpt(options).Losses(20);
  options.zero = {.stage = GetParam(), .shares = {0.5, 0.5}};
  options.plan = SpreadBatch(TinyGpt::kSamples, {1, 5});
  ExpectNear(LossesOver(2, options, 20), want, 1e-5);
}

// Of the whole model: P elements in all; unit by unit, ranks send all but their own slice to reduce
// and all but the next one's to gather.
TEST_P(ZeroTrain, SendsWhatTheFormulasSay) {
  const int stage = GetParam();
  for (const int64_t micro_steps : {1, 3}) {
    for (const std::vector<double>& shares : {std::vector<double>{}, {0.6, 0.4, 0}}) {
      const std::vector<int64_t> micro_batch =
          micro_steps == 1 ? std::vector<int64_t>{4, 4, 4} : std::vector<int64_t>{2, 1, 1};
      const TinyOptions options{.zero = {.stage = stage, .shares = shares},
                                .plan = SpreadBatch(TinyGpt::kSamples, micro_batch)};
      ASSERT_EQ(options.plan.ranks[0].micro_steps, micro_steps);
      OnRanks(3, [&](Communicator& c) {
        TinyGpt gpt(options, CpuDevice(), &c);
        gpt.Run(0);
        const Zero& zero = gpt.flat();
        const auto sent = [&](CollectiveKind kind) { return c.stats()[kind].bytes_sent; };
        gpt.flat().ValuesFromMasters();  // so that gathers behind the step are done
        const int64_t gathered = sent(CollectiveKind::kAllGather);
        const int64_t reduced = sent(CollectiveKind::kReduceScatter);
        const int64_t all_reduced = sent(CollectiveKind::kAllReduce);
        gpt.Run(1);
        gpt.flat().ValuesFromMasters();
        const int64_t p = 4 * zero.layout().size();
        const int64_t own = 4 * zero.shards().Of(c.rank()).size();
        const int64_t next = 4 * zero.shards().Of((c.rank() + 1) % 3).size();
        int64_t gathers = 0;  // stage 3: by the schedule
        for (int u = 0; u < zero.schedule().units(); ++u) {
          const FlatInterval unit = zero.schedule().unit(u).interval;
          const auto counts = zero.shards().Counts(unit);
          gathers += int64_t{4} * zero.schedule().Gathers(u, true) *
                     (unit.size() - counts[static_cast<size_t>((c.rank() + 1) % 3)]);
        }
        // ValuesFromMasters gathers once more at stages 1 and 2.
        const int64_t want_gathered = stage == 0   ? 0
                                      : stage == 3 ? micro_steps * gathers
                                                   : 2 * (p - next);
        EXPECT_EQ(sent(CollectiveKind::kAllGather) - gathered, want_gathered);
        EXPECT_EQ(sent(CollectiveKind::kReduceScatter) - reduced,
                  stage == 0 ? 0 : (stage == 1 ? 1 : micro_steps) * (p - own));
        if (stage == 0) {
          // Even slices of units, whose sizes divide by 3 up to 2 elements each.
          EXPECT_NEAR(static_cast<double>(sent(CollectiveKind::kAllReduce) - all_reduced),
                      static_cast<double>(p) * 4 / 3, 4.0 * 3 * zero.schedule().units() + 64);
        }
      });
    }
  }
}

TEST_P(ZeroTrain, HoldsWhatTheFormulasSay) {
  const int stage = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    MemoryStore store;
    OnThreads(2, [&](int rank) {
      const auto device = NewDeferredCpuDevice(1);
      const auto c = NewGlooCommunicator(TestGloo(store, rank, 2), *device);
      TinyGpt gpt({.dtype = dtype,
                   .zero = {.stage = stage, .shares = {0.75, 0.25}},
                   .plan = SpreadBatch(TinyGpt::kSamples, {2, 2})},
                  *device, c.get());
      const auto held = [&] {
        int64_t bytes = 0;
        for (const auto& [name, size] : device->allocator().InUseByName()) {
          const bool ours = name == "parameters" || name == "gradients" ||
                            name == "f32 master parameters" || name == "first moments" ||
                            name == "second moments";
          if (ours) bytes += size;
        }
        return bytes;
      };
      const int64_t p = gpt.flat().layout().size();
      const int64_t s = stage == 0 ? p : gpt.flat().shards().Of(rank).size();
      const int64_t e = dtype == DType::kF32 ? 4 : 2, master = dtype == DType::kF32 ? 0 : 4;
      const int64_t want = (stage < 3 ? p : s) * e + (stage < 2 ? p : s) * 4 + s * (8 + master);
      EXPECT_EQ(ZeroStateBytes(stage, dtype, p, s), want);
      // Blocks are multiples of 512 bytes.
      EXPECT_NEAR(static_cast<double>(held()), static_cast<double>(want), 5 * 512);
      gpt.Losses(2);
      EXPECT_NEAR(static_cast<double>(held()), static_cast<double>(want), 5 * 512);
      c->Barrier();
    });
  }
}

TEST(Zero, RanksMustAgree) {
  for (const int different : {0, 1}) {
    EXPECT_THROW(
        {
          MemoryStore store;
          OnThreads(2, [&](int rank) {
            const auto c = NewGlooCommunicator(TestGloo(store, rank, 2), CpuDevice());
            TinyOptions options{.plan = SpreadBatch(TinyGpt::kSamples, {2, 2})};
            if (different == 0) options.zero.stage = rank;
            if (different == 1 && rank == 1) options.dtype = DType::kBF16;
            TinyGpt gpt(options, CpuDevice(), c.get());
          });
        },
        InvalidArgument);
  }
}

TEST(Zero, NeedsACommunicatorOfItsDevice) {
  EXPECT_THROW(OnRanks(2,
                       [](Communicator& c) {
                         const auto device = NewDeferredCpuDevice(1);
                         TinyGpt gpt({.plan = SpreadBatch(TinyGpt::kSamples, {2, 2})}, *device, &c);
                       }),
               InvalidArgument);
}

TEST(Zero, NamesTheReplicaThatDiffers) {
  for (const int ranks : {2, 3}) {
    try {
      OnRanks(ranks, [ranks](Communicator& c) {
        const std::vector<int64_t> micro(static_cast<size_t>(ranks), 2);
        TinyGpt gpt({.plan = SpreadBatch(TinyGpt::kSamples, micro)}, CpuDevice(), &c);
        gpt.Run(0);
        gpt.flat().CheckReplicas();
        if (c.rank() == 1) {
          const std::vector<float> one = {1e-3F};
          gpt.flat().WriteMasters(77, one);
        }
        gpt.flat().CheckReplicas();
      });
      ADD_FAILURE() << "not noticed";
    } catch (const Error& e) {
      // Of two nobody can tell which.
      EXPECT_THAT(e.what(), HasSubstr(ranks == 2 ? "bits: one of them has" : "bits: rank 1 has"));
    }
  }
}

TEST(Zero, OneRankThatFailsEndsAll) {
  std::vector<std::string> messages(3);
  MemoryStore store;
  OnThreads(3, [&](int rank) {
    const auto c = NewGlooCommunicator(TestGloo(store, rank, 3), CpuDevice());
    TinyGpt gpt({.zero = {.stage = 3}, .plan = SpreadBatch(TinyGpt::kSamples, {2, 2, 2})},
                CpuDevice(), c.get());
    gpt.Run(0);
    try {
      if (rank == 1) {
        gpt.flat().BeginStep();
        gpt.flat().MicroStep([] { throw OutOfMemory("no room for something"); }, true);
      }
      gpt.Run(1);
      FAIL();
    } catch (const Error& e) {
      messages[static_cast<size_t>(rank)] = e.what();
    }
  });
  EXPECT_EQ(messages[1], "no room for something");
}

}  // namespace
}  // namespace pando
