#include "dist/hetero/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "dist/hetero/exact_planner.h"
#include "dist/hetero/fast_planner.h"
#include "dist/hetero/step_model.h"
#include "engine/error.h"

namespace pando {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::vector<int> All(const PlanProblem& problem) {
  std::vector<int> all(problem.devices.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Keeps the faster of `best` and a plan of these batches with even shares, if that fits.
void Weigh(const PlanProblem& problem, int stage, const std::vector<int>& used,
           const std::vector<RankBatch>& batches, HeteroPlan& best) {
  const StepModel model(problem, stage, used);
  HeteroPlan plan{model.stage(), std::vector<DevicePlan>(problem.devices.size()), 0};
  const double share = model.stage() == 0 ? 1 : 1 / static_cast<double>(used.size());
  for (size_t i = 0; i < used.size(); ++i) {
    const Compute& compute = model.device(i).computes[0];
    const int64_t micro = batches[i].micro_batch;
    if (micro > compute.seconds.largest() ||
        model.MostShare(model.device(i), compute, micro) < share) {
      return;
    }
    plan.devices[static_cast<size_t>(used[i])] = {true, 0, batches[i], share};
  }
  plan.seconds = PredictStep(problem, plan);
  if (plan.seconds < best.seconds) best = std::move(plan);
}

/// The same micro-batch for all.
HeteroPlan EvenSplit(const PlanProblem& problem, const std::vector<int>& used) {
  HeteroPlan best;
  best.seconds = kNever;
  int64_t most = problem.global_batch;
  for (const int d : used) {
    most = std::min(most, problem.devices[static_cast<size_t>(d)].computes[0].seconds.largest());
  }
  for (const int stage : problem.stages) {
    for (int64_t b = 1; b <= most; ++b) {
      const BatchPlan plan =
          SpreadBatch(problem.global_batch, std::vector<int64_t>(used.size(), b));
      Weigh(problem, stage, used, plan.ranks, best);
    }
  }
  return best;
}

/// Each device's samples in proportion to its peak FLOP/s, in as many micro-steps for all as memory
/// asks for.
HeteroPlan ByPeak(const PlanProblem& problem) {
  HeteroPlan best;
  best.seconds = kNever;
  double peak = 0;
  for (const DeviceProfile& d : problem.devices) peak += d.peak_flops;
  if (peak <= 0) return best;
  for (const int stage : problem.stages) {
    for (int64_t steps = 1; steps <= problem.global_batch; ++steps) {
      std::vector<RankBatch> batches;
      double reached = 0;
      int64_t given = 0;
      for (const DeviceProfile& d : problem.devices) {
        reached += d.peak_flops / peak * static_cast<double>(problem.global_batch);
        const auto samples = static_cast<int64_t>(std::llround(reached)) - given;
        given += samples;
        const int64_t micro = (samples + steps - 1) / steps;
        // What is left for the last micro-steps may be less than one.
        const int64_t full = micro == 0 ? 0 : std::min(steps - 1, samples / micro);
        const int64_t last = samples - full * micro;
        if (stage >= 2 && full < steps - 1) {
          batches.clear();
          break;
        }
        batches.push_back({micro, last == 0 && stage < 2 ? full : full + 1,
                           last == 0 && stage < 2 ? micro : last});
      }
      if (batches.empty()) continue;
      const double before = best.seconds;
      Weigh(problem, stage, All(problem), batches, best);
      // Smaller micro-batches than fit are slower still.
      if (best.seconds < before && steps > 1) break;
    }
  }
  return best;
}

HeteroPlan Ruled(const PlanProblem& problem, ShareRule rule) {
  HeteroPlan none;
  none.seconds = kNever;
  return FastPlan(problem, {rule, /*members=*/false, /*computes=*/false}).value_or(none);
}

/// Why nothing fits.
std::string Missing(const PlanProblem& problem) {
  int64_t memory = 0, most = 0;
  for (const DeviceProfile& d : problem.devices) {
    memory += d.memory;
    for (const Compute& c : d.computes) most = std::max(most, c.seconds.largest());
  }
  if (most == 0) return "no device has room for one sample";
  const StepModel model(problem, problem.stages.back(), All(problem));
  const Compute& compute = problem.devices[0].computes.back();
  const int64_t whole = model.Memory(compute, 1, 1), others = model.Memory(compute, 1, 0);
  return absl::StrCat("the model's state takes ", (whole - others) >> 20, " MiB at stage ",
                      model.stage(), ", and ", others >> 20,
                      " MiB more on each device for what is whole for a while and one sample; all "
                      "devices have ",
                      memory >> 20, " MiB together");
}

}  // namespace

std::vector<Strategy> OtherStrategies(const PlanProblem& problem) {
  CheckProblem(problem);
  std::map<int, std::vector<int>> kinds;
  for (const int d : All(problem)) {
    kinds[problem.devices[static_cast<size_t>(d)].kind].push_back(d);
  }
  const auto speed = [&](const auto& kind) {
    const TimeCurve& curve =
        problem.devices[static_cast<size_t>(kind.second[0])].computes[0].seconds;
    const int64_t b = curve.largest();
    return b == 0 ? 0 : static_cast<double>(b) / curve.At(b);
  };
  const auto by_speed = [&](const auto& a, const auto& b) { return speed(a) < speed(b); };
  const auto [weakest, strongest] = std::minmax_element(kinds.begin(), kinds.end(), by_speed);
  return {{"even split", EvenSplit(problem, All(problem))},
          {"strongest only", EvenSplit(problem, strongest->second)},
          {"weakest only", EvenSplit(problem, weakest->second)},
          {"by peak FLOP/s", ByPeak(problem)},
          {"Poplar's", Ruled(problem, ShareRule::kEven)},
          {"Cephalo's", Ruled(problem, ShareRule::kByMemory)}};
}

absl::StatusOr<HeteroPlan> MakePlan(const PlanProblem& problem) {
  CheckProblem(problem);
  HeteroPlan best;
  best.seconds = kNever;
  if (IsSmall(problem)) {
    if (const auto plan = ExactPlan(problem)) best = *plan;
  } else {
    if (const auto plan = FastPlan(problem)) best = *plan;
    for (Strategy& other : OtherStrategies(problem)) {
      if (other.plan.seconds < best.seconds) best = std::move(other.plan);
    }
  }
  if (best.devices.empty()) {
    return absl::NotFoundError(absl::StrCat("nothing fits: ", Missing(problem)));
  }
  return best;
}

}  // namespace pando
