#include "dist/zero/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/zero/plan_file.h"
#include "engine/error.h"

namespace pando {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BatchPlan, SpreadsOverFewMicroSteps) {
  const BatchPlan plan = SpreadBatch(42, {8, 8, 4, 1});  // 21 at once: two whole micro-steps
  EXPECT_THAT(plan.MicroBatches(0), ElementsAre(8, 8));
  EXPECT_THAT(plan.MicroBatches(3), ElementsAre(1, 1));
  EXPECT_EQ(plan.FirstSample(2), 32);
  const BatchPlan rest = SpreadBatch(27, {8, 8, 4, 1});  // 6 are left for the second
  EXPECT_EQ(rest.global_batch(), 27);
  EXPECT_THAT(rest.MicroBatches(0), ElementsAre(8, 3));
  EXPECT_THAT(rest.MicroBatches(1), ElementsAre(8, 2));
  EXPECT_THAT(rest.MicroBatches(2), ElementsAre(4, 1));
  EXPECT_THAT(rest.MicroBatches(3), ElementsAre(1, 0));
  EXPECT_THAT(SpreadBatch(2, {4, 4, 4}).MicroBatches(2), ElementsAre(0));
  EXPECT_THAT(SpreadBatch(3, {0, 3}).MicroBatches(0), ElementsAre(0));
}

// Every sample once, for all small sizes; nobody beyond its micro-batch.
TEST(BatchPlan, AssignsEverySampleOnce) {
  for (int64_t a = 0; a < 5; ++a) {
    for (int64_t b = 0; b < 5; ++b) {
      for (int64_t c = 0; c < 5; ++c) {
        for (int64_t batch = 1; a + b + c > 0 && batch < 30; ++batch) {
          const BatchPlan plan = SpreadBatch(batch, {a, b, c});
          plan.Check(3);
          EXPECT_EQ(plan.global_batch(), batch);
        }
      }
    }
  }
}

TEST(BatchPlan, RefusesNonsense) {
  EXPECT_THROW(SpreadBatch(0, {1}), InvalidArgument);
  EXPECT_THROW(SpreadBatch(1, {0, 0}), InvalidArgument);
  EXPECT_THROW(SpreadBatch(1, {2, -1}), InvalidArgument);
  const BatchPlan uneven{{{2, 2, 1}, {2, 1, 2}}};
  uneven.Check(1);
  EXPECT_THROW(uneven.Check(2), InvalidArgument);
  EXPECT_THROW((BatchPlan{{{2, 1, 3}}}.Check(0)), InvalidArgument);
  EXPECT_THROW((BatchPlan{{{2, 1, 0}}}.Check(0)), InvalidArgument);
}

TEST(PlanFile, RoundTrip) {
  const TrainPlan plan{2, SpreadBatch(27, {8, 8, 4, 1}), {0.4, 0.4, 0.15, 0.05}};
  const absl::StatusOr<TrainPlan> back = ParsePlan(FormatPlan(plan));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->zero_stage, 2);
  EXPECT_EQ(back->shares, plan.shares);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(back->batches.MicroBatches(r), plan.batches.MicroBatches(r));
  }
  EXPECT_EQ(FormatPlan(*back), FormatPlan(plan));
  EXPECT_TRUE(back->recompute.empty());
  TrainPlan with = plan;
  with.recompute = {true, false, false, true};
  EXPECT_EQ(ParsePlan(FormatPlan(with))->recompute, with.recompute);
}

TEST(PlanFile, SaysWhatIsWrong) {
  const std::string good = FormatPlan({0, SpreadBatch(4, {2, 2}), {1, 1}});
  const auto with = [&good](const std::string& old, const std::string& fresh) {
    std::string text = good;
    text.replace(text.find(old), old.size(), fresh);
    return std::string(ParsePlan(text).status().message());
  };
  EXPECT_THAT(with("{", "["), HasSubstr("not JSON"));
  EXPECT_THAT(with("\"zero_stage\": 0", "\"zero_stage\": 4"), HasSubstr("zero_stage is 4"));
  EXPECT_THAT(with("\"zero_stage\"", "\"stage\""), HasSubstr("no zero_stage"));
  EXPECT_THAT(with("\"micro_batch\":2", "\"micro_batch\":-2"),
              HasSubstr("rank 0: micro_batch is -2"));
  EXPECT_THAT(with("\"micro_batch\":2", "\"micro_batch\":\"2\""), HasSubstr("not a count"));
  EXPECT_THAT(with("\"share\":1.0", "\"share\":-1.0"), HasSubstr("share is -1"));
  EXPECT_THAT(
      std::string(ParsePlan(FormatPlan({0, SpreadBatch(4, {2, 2}), {0, 0}})).status().message()),
      HasSubstr("all shares are 0"));
  EXPECT_THROW(FormatPlan({0, SpreadBatch(4, {2, 2}), {1}}), InvalidArgument);
  EXPECT_THAT(with("\"share\":1.0", "\"share\":1.0,\"recompute\":true"),
              HasSubstr("some ranks have recompute"));
  EXPECT_THAT(with("\"share\":1.0", "\"share\":1.0,\"recompute\":1"),
              HasSubstr("not true or false"));
  EXPECT_THAT(with("\"share\":1.0", "\"shard\":1.0"), HasSubstr("rank 0 has no share"));
  EXPECT_THAT(with("\"last_micro_batch\":2", "\"last_micro_batch\":3"), HasSubstr("rank 0"));
}

}  // namespace
}  // namespace pando
