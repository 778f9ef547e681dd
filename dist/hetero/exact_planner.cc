#include "dist/hetero/exact_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "dist/hetero/last_micro_batch.h"
#include "dist/hetero/step_model.h"

namespace pando {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Leaves of the search that take about a second.
constexpr double kSmall = 3e6;

/// What a device may do in a plan of one stage.
struct Option {
  int compute;
  RankBatch batch;    ///< at stages 2 and 3 the full micro-batch only
  double most_share;  ///< beside that
  double seconds;     ///< of the micro-batch, or at stages 0 and 1 of all its steps
};

/// Goes through all plans of one stage on some devices.
class Search {
 public:
  Search(const PlanProblem& problem, const StepModel& model, HeteroPlan& best)
      : problem_(problem), model_(model), best_(best) {
    const size_t n = model.used().size();
    for (size_t i = 0; i < n; ++i) options_.push_back(OptionsOf(model.device(i)));
    most_samples_behind_.assign(n + 1, 0);
    for (size_t i = n; i-- > 0;) {
      int64_t most = 0;
      for (const Option& o : options_[i]) most = std::max(most, Samples(o));
      most_samples_behind_[i] = most_samples_behind_[i + 1] + most;
    }
    chosen_.resize(n);
  }

  void Run() { Choose(0, 0, 0); }

 private:
  int64_t Samples(const Option& o) const {
    return model_.meets_every_micro_step() ? o.batch.micro_batch : o.batch.samples();
  }

  std::vector<Option> OptionsOf(const DeviceProfile& device) const {
    std::vector<Option> options;
    for (size_t c = 0; c < device.computes.size(); ++c) {
      const Compute& compute = device.computes[c];
      for (int64_t b = 0; b <= std::min(compute.seconds.largest(), problem_.global_batch); ++b) {
        const double share = model_.MostShare(device, compute, b);
        if (share < 0) break;
        const double one = compute.seconds.At(b);
        const int index = static_cast<int>(c);
        if (model_.meets_every_micro_step()) {
          options.push_back({index, {b, 1, b}, share, one});
        } else if (b == 0) {
          options.push_back({index, {}, share, model_.OwnSteps(0, 0, 0)});
        } else {
          // Fewer samples than a micro-batch are another option's.
          for (int64_t n = b; n <= problem_.global_batch; ++n) {
            const int64_t steps = (n + b - 1) / b, rest = n - (steps - 1) * b;
            const double end = compute.seconds.At(rest);
            const double all = static_cast<double>(steps - 1) * one + end;
            options.push_back(
                {index, {b, steps, rest}, share, model_.OwnSteps(all, steps > 1 ? one : end, end)});
          }
        }
      }
    }
    return options;
  }

  /// Device i and those behind it, the ones before having `samples` and taking up to `slowest`.
  void Choose(size_t i, int64_t samples, double slowest) {
    if (AtLeast(samples + most_samples_behind_[i], slowest) >= best_.seconds) return;
    if (i == chosen_.size()) {
      Finish(samples, slowest);
      return;
    }
    // Of devices of one kind the order does not matter.
    const bool same = i > 0 && model_.device(i).kind == model_.device(i - 1).kind;
    const size_t end = same ? chosen_[i - 1] + 1 : options_[i].size();
    for (size_t o = 0; o < end; ++o) {
      chosen_[i] = o;
      const Option& option = options_[i][o];
      Choose(i + 1, samples + Samples(option), std::max(slowest, option.seconds));
    }
  }

  /// No plan of which this is known is faster.
  double AtLeast(int64_t samples, double slowest) const {
    if (!model_.meets_every_micro_step()) {
      return samples < problem_.global_batch ? kNever : slowest + model_.Ends(0);
    }
    if (samples == 0) return kNever;
    const int64_t steps = (problem_.global_batch + samples - 1) / samples;
    return static_cast<double>(steps - 1) * model_.MicroStep(slowest) + model_.MicroStep(0);
  }

  void Finish(int64_t samples, double slowest) {
    std::vector<double> most(chosen_.size());
    for (size_t i = 0; i < most.size(); ++i) most[i] = options_[i][chosen_[i]].most_share;
    const std::optional<std::vector<double>> shares = model_.Shares(most);
    if (!shares) return;
    HeteroPlan plan{model_.stage(), std::vector<DevicePlan>(problem_.devices.size()), 0};
    std::vector<RankBatch> batches(chosen_.size());
    for (size_t i = 0; i < chosen_.size(); ++i) batches[i] = options_[i][chosen_[i]].batch;
    double seconds = slowest + model_.Ends(0);
    if (model_.meets_every_micro_step()) {
      std::vector<const TimeCurve*> curves;
      for (size_t i = 0; i < chosen_.size(); ++i) {
        const auto c = static_cast<size_t>(options_[i][chosen_[i]].compute);
        curves.push_back(&model_.device(i).computes[c].seconds);
      }
      const LastMicroBatch last = SpreadLast(problem_.global_batch, samples, curves, batches);
      const double first = last.steps > 1 ? slowest : last.seconds;
      seconds = static_cast<double>(last.steps - 1) * model_.MicroStep(slowest) +
                model_.MicroStep(last.seconds) + model_.Ends(first);
    } else if (samples != problem_.global_batch) {
      return;
    }
    seconds += model_.Optimizer(*shares);
    if (seconds >= best_.seconds) return;
    plan.seconds = seconds;
    for (size_t i = 0; i < chosen_.size(); ++i) {
      plan.devices[static_cast<size_t>(model_.used()[i])] = {true, options_[i][chosen_[i]].compute,
                                                             batches[i], (*shares)[i]};
    }
    best_ = std::move(plan);
  }

  const PlanProblem& problem_;
  const StepModel& model_;
  HeteroPlan& best_;
  std::vector<std::vector<Option>> options_;  ///< by used device
  std::vector<int64_t> most_samples_behind_;
  std::vector<size_t> chosen_;
};

}  // namespace

bool IsSmall(const PlanProblem& problem) {
  double leaves = 1;
  for (const DeviceProfile& d : problem.devices) {
    double options = 1;  // not to be used
    for (const Compute& c : d.computes) {
      const auto sizes = static_cast<double>(std::min(c.seconds.largest(), problem.global_batch));
      options += 1 + sizes * static_cast<double>(problem.global_batch);
    }
    leaves *= options;
  }
  return leaves <= kSmall;
}

std::optional<HeteroPlan> ExactPlan(const PlanProblem& problem) {
  CheckProblem(problem);
  HeteroPlan best;
  best.seconds = kNever;
  const size_t n = problem.devices.size();
  for (uint64_t set = 1; set < uint64_t{1} << n; ++set) {
    std::vector<int> used;
    for (size_t d = 0; d < n; ++d) {
      if ((set >> d & 1) != 0) used.push_back(static_cast<int>(d));
    }
    for (const int stage : problem.stages) {
      const StepModel model(problem, stage, used);
      Search(problem, model, best).Run();
      if (used.size() == 1) break;  // there is nothing to be cut in parts
    }
  }
  if (best.devices.empty()) return std::nullopt;
  return best;
}

}  // namespace pando
