#pragma once

// How long a step takes and what it needs, for the devices that take part: what planners minimise.
// The schedule is that of dist/zero, with overlap (docs/hetero.md).

#include <cstdint>
#include <optional>
#include <vector>

#include "dist/hetero/plan_problem.h"

namespace pando {

/// The costs of one stage on some of the devices. All times in seconds.
///
/// At stages 2 and 3 ranks meet in every micro-step, which takes as long as the slowest one's
/// MicroStep. At 0 and 1 each goes through its own micro-steps and meets the others at the end, so
/// that the slowest one's OwnSteps counts.
class StepModel {
 public:
  /// `used`: indices of devices. The problem outlives this.
  StepModel(const PlanProblem& problem, int stage, std::vector<int> used);

  int stage() const { return stage_; }
  const std::vector<int>& used() const { return used_; }
  const DeviceProfile& device(size_t i) const {
    return problem_.devices[static_cast<size_t>(used_[i])];
  }
  const PlanProblem& problem() const { return problem_; }
  bool meets_every_micro_step() const { return stage_ >= 2 && used_.size() > 1; }

  /// Stages 2 and 3: of a micro-batch that takes a device `compute` seconds alone.
  double MicroStep(double compute) const;
  /// Stages 0 and 1: of all of a device's micro-steps, of which the first and the last take
  /// `first` and `last`, up to the end of the step's communication.
  double OwnSteps(double all, double first, double last) const;
  /// What a step takes beyond its micro-steps, of which the first takes `first`, but for the
  /// optimizer.
  double Ends(double first) const;

  /// The largest part of the flat space that a device can hold beside a micro-batch of `batch`;
  /// below 0: not even that micro-batch. Where the stage keeps nothing in parts: 1 or -1.
  double MostShare(const DeviceProfile& device, const Compute& compute, int64_t batch) const;
  /// Bytes that a device needs.
  int64_t Memory(const Compute& compute, int64_t batch, double share) const;
  /// The shares, none above its `most`, by which the slowest optimizer is fastest; none if they
  /// don't add up to 1.
  std::optional<std::vector<double>> Shares(const std::vector<double>& most) const;
  /// Of the slowest device.
  double Optimizer(const std::vector<double>& shares) const;

 private:
  double Collective(double bytes, int rounds) const;

  const PlanProblem& problem_;
  int stage_;
  std::vector<int> used_;
  double parameters_;
  double bytes_per_second_ = 0, latency_ = 0;
  double gather_ = 0, gather_forward_ = 0, gather_backward_ = 0, first_gather_ = 0;
  double reduce_ = 0, first_reduce_ = 0;
};

/// Seconds of a step and, unless null, of each device's own work in it. The plan must be complete.
double PredictStep(const PlanProblem& problem, const HeteroPlan& plan,
                   std::vector<double>* busy = nullptr);

/// Throws InvalidArgument, saying what is wrong, unless the plan does each sample once, fits into
/// memory and gives the whole flat space away.
void CheckPlan(const PlanProblem& problem, const HeteroPlan& plan);

/// Throws InvalidArgument for a problem that makes no sense.
void CheckProblem(const PlanProblem& problem);

}  // namespace pando
