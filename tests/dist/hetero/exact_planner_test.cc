#include "dist/hetero/exact_planner.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/dist/hetero/some_problems.h"
#include "tests/fewer_cases.h"

namespace pando {
namespace {

/// Shares for devices that can hold up to `most`: the least time of the slowest optimizer, by
/// bisection.
std::optional<std::vector<double>> ShareOut(const PlanProblem& problem, const HeteroPlan& plan,
                                            const std::vector<double>& most) {
  double sum = 0;
  for (const double m : most) {
    if (m < 0) return std::nullopt;
    sum += m;
  }
  if (sum < 1) return std::nullopt;
  std::vector<double> shares(most.size());
  const auto take = [&](double seconds) {
    double taken = 0;
    for (size_t d = 0; d < most.size(); ++d) {
      if (!plan.devices[d].used) continue;
      shares[d] =
          std::min(most[d], seconds / std::max(problem.devices[d].optimizer_seconds, 1e-15));
      taken += shares[d];
    }
    return taken;
  };
  double low = 0, high = 1;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (take(middle) >= 1 ? high : low) = middle;
  }
  take(high);
  return shares;
}

/// Every plan's time, the smallest of it.
class BruteForce {
 public:
  explicit BruteForce(const PlanProblem& problem) : problem_(problem) {
    plan_.devices.resize(problem.devices.size());
    for (const int stage : problem.stages) {
      plan_.stage = stage;
      const int64_t most_steps = problem.global_batch;
      if (stage < 2) Devices(0, 0, -1);
      for (int64_t steps = 1; stage >= 2 && steps <= most_steps; ++steps) Devices(0, 0, steps);
    }
  }
  double best() const { return best_; }

 private:
  /// `steps`: that all must take; -1: each as many as it likes.
  void Devices(size_t d, int64_t samples, int64_t steps) {
    if (d == plan_.devices.size()) {
      if (samples == problem_.global_batch) Weigh();
      return;
    }
    DevicePlan& p = plan_.devices[d];
    p = {};
    Devices(d + 1, samples, steps);
    for (size_t c = 0; c < problem_.devices[d].computes.size(); ++c) {
      const int64_t largest = problem_.devices[d].computes[c].seconds.largest();
      for (int64_t micro = 0; micro <= largest; ++micro) {
        const int64_t left = problem_.global_batch - samples;
        const int64_t low = steps < 0 ? 0 : steps;
        const int64_t high = steps < 0 ? (micro == 0 ? 0 : left / micro + 1) : steps;
        for (int64_t k = low; k <= high; ++k) {
          for (int64_t last = 0; last <= (k == 0 ? 0 : micro); ++last) {
            const RankBatch batch{micro, k, last};
            if (batch.samples() > left) break;
            // A micro-step of nothing at the end is one fewer.
            if (steps < 0 && k > 0 && last == 0) continue;
            p = {true, static_cast<int>(c), batch, 0};
            Devices(d + 1, samples + batch.samples(), steps);
          }
        }
      }
    }
    p = {};
  }

  void Weigh() {
    std::vector<int> used;
    for (size_t d = 0; d < plan_.devices.size(); ++d) {
      if (plan_.devices[d].used) used.push_back(static_cast<int>(d));
    }
    if (used.empty()) return;
    const StepModel model(problem_, plan_.stage, used);
    std::vector<double> most(plan_.devices.size());
    for (const int u : used) {
      const auto d = static_cast<size_t>(u);
      const DevicePlan& p = plan_.devices[d];
      most[d] = model.MostShare(problem_.devices[d],
                                problem_.devices[d].computes[static_cast<size_t>(p.compute)],
                                p.batch.micro_batch);
    }
    if (model.stage() > 0) {
      const auto shares = ShareOut(problem_, plan_, most);
      if (!shares) return;
      for (const int u : used) {
        plan_.devices[static_cast<size_t>(u)].share = (*shares)[static_cast<size_t>(u)];
      }
    } else {
      for (const int u : used) {
        if (most[static_cast<size_t>(u)] < 0) return;
      }
    }
    best_ = std::min(best_, PredictStep(problem_, plan_));
  }

  const PlanProblem& problem_;
  HeteroPlan plan_;
  double best_ = std::numeric_limits<double>::infinity();
};

TEST(ExactPlan, IsTheBestOfAll) {
  int planned = 0;
  const uint64_t seeds = FewerCases() ? 40 : 400;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const int devices = static_cast<int>(seed % 4) + 1;
    const PlanProblem problem =
        RandomProblem(seed, {.devices = devices,
                             .largest_batch = devices == 3 ? 2 : 4,
                             .global_batch = devices == 4 ? 5 : 12 - 2 * devices});
    const double want = BruteForce(problem).best();
    const std::optional<HeteroPlan> got = ExactPlan(problem);
    ASSERT_EQ(got.has_value(), std::isfinite(want)) << seed;
    if (!got) continue;
    ++planned;
    CheckPlan(problem, *got);
    EXPECT_NEAR(got->seconds, want, 1e-9 * want) << seed;
    EXPECT_NEAR(PredictStep(problem, *got), got->seconds, 1e-12 * want) << seed;
  }
  EXPECT_GT(planned, static_cast<int>(seeds / 2));
}

// More can't hurt: what is not needed is left out.
TEST(ExactPlan, AnotherDeviceOrMoreMemoryNeverHurts) {
  for (uint64_t seed = 0; seed < (FewerCases() ? 5 : 60); ++seed) {
    PlanProblem problem =
        RandomProblem(1000 + seed, {.devices = 3, .largest_batch = 3, .global_batch = 8});
    const std::optional<HeteroPlan> all = ExactPlan(problem);
    PlanProblem fewer = problem;
    fewer.devices.pop_back();
    const std::optional<HeteroPlan> some = ExactPlan(fewer);
    if (some) {
      ASSERT_TRUE(all.has_value()) << seed;
      EXPECT_LE(all->seconds, some->seconds * (1 + 1e-12)) << seed;
    }
    for (DeviceProfile& d : problem.devices) d.memory += d.memory / 3;
    const std::optional<HeteroPlan> more = ExactPlan(problem);
    if (all) {
      ASSERT_TRUE(more.has_value());
      EXPECT_LE(more->seconds, all->seconds * (1 + 1e-12)) << seed;
    }
  }
}

}  // namespace
}  // namespace pando
