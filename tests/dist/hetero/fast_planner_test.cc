#include "dist/hetero/fast_planner.h"

#include <gtest/gtest.h>

#include "dist/hetero/exact_planner.h"
#include "dist/hetero/planner.h"
#include "tests/dist/hetero/some_problems.h"
#include "tests/fewer_cases.h"

namespace pando {
namespace {

// But for two of 1000 clusters, and those by less than 5 %.
TEST(FastPlan, IsWithinOnePercentOfTheBest) {
  int planned = 0, missed = 0;
  const uint64_t seeds = FewerCases() ? 100 : 1000;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const PlanProblem problem = RandomProblem(seed, {.devices = static_cast<int>(seed % 4) + 1,
                                                     .largest_batch = seed % 4 == 3 ? 4 : 6,
                                                     .global_batch = seed % 4 == 3 ? 10 : 16});
    const std::optional<HeteroPlan> best = ExactPlan(problem);
    const std::optional<HeteroPlan> fast = FastPlan(problem);
    ASSERT_EQ(fast.has_value(), best.has_value()) << seed;
    if (!fast) continue;
    ++planned;
    CheckPlan(problem, *fast);
    EXPECT_EQ(PredictStep(problem, *fast), fast->seconds) << seed;
    EXPECT_LE(fast->seconds, 1.05 * best->seconds) << seed;
    EXPECT_GE(fast->seconds, (1 - 1e-12) * best->seconds) << seed;
    if (fast->seconds > 1.01 * best->seconds) ++missed;
  }
  EXPECT_GT(planned, static_cast<int>(seeds * 8 / 10));
  EXPECT_LE(missed, 2);
}

ProblemSize Larger(uint64_t seed) {
  return {.devices = static_cast<int>(8 + seed % 17), .largest_batch = 40, .global_batch = 500};
}

TEST(MakePlan, IsNeverSlowerThanOthers) {
  int planned = 0;
  for (uint64_t seed = 0; seed < (FewerCases() ? 2 : 8); ++seed) {
    const PlanProblem problem = RandomProblem(2000 + seed, Larger(seed));
    const absl::StatusOr<HeteroPlan> plan = MakePlan(problem);
    for (const Strategy& other : OtherStrategies(problem)) {
      if (other.plan.devices.empty()) continue;
      CheckPlan(problem, other.plan);
      ASSERT_TRUE(plan.ok()) << plan.status() << other.name;
      EXPECT_LE(plan->seconds, other.plan.seconds) << other.name << " " << seed;
    }
    if (!plan.ok()) continue;
    ++planned;
    CheckPlan(problem, *plan);
  }
  EXPECT_GT(planned, FewerCases() ? 0 : 5);
}

// By more than a percent, that is.
TEST(FastPlan, AnotherDeviceOrMoreMemoryHurtsLittle) {
  for (uint64_t seed = 0; seed < (FewerCases() ? 2 : 8); ++seed) {
    PlanProblem problem = RandomProblem(3000 + seed, Larger(seed));
    const std::optional<HeteroPlan> all = FastPlan(problem);
    PlanProblem fewer = problem;
    fewer.devices.pop_back();
    const std::optional<HeteroPlan> some = FastPlan(fewer);
    if (some) {
      ASSERT_TRUE(all.has_value());
      EXPECT_LE(all->seconds, 1.01 * some->seconds) << seed;
    }
    for (DeviceProfile& d : problem.devices) d.memory += d.memory / 3;
    const std::optional<HeteroPlan> more = FastPlan(problem);
    if (all) {
      ASSERT_TRUE(more.has_value());
      EXPECT_LE(more->seconds, 1.01 * all->seconds) << seed;
    }
  }
}

TEST(MakePlan, SaysWhyNothingFits) {
  PlanProblem problem = RandomProblem(1, {});
  for (DeviceProfile& d : problem.devices) d.memory = 1000;
  const absl::Status status = MakePlan(problem).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(status.message()).find("nothing fits"), std::string::npos);
  problem.devices[0].computes.clear();
  EXPECT_THROW(MakePlan(problem).status().IgnoreError(), InvalidArgument);
  problem.devices.clear();
  EXPECT_THROW(MakePlan(problem).status().IgnoreError(), InvalidArgument);
}

}  // namespace
}  // namespace pando
