#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dist/hetero/plan_problem.h"

namespace pando {

/// The best plan that is found: exactly where that is quick, else the fast planner's, and never a
/// slower one than the strategies below. NotFound, saying what is missing, if nothing fits.
absl::StatusOr<HeteroPlan> MakePlan(const PlanProblem& problem);

/// How others would use the same devices, each with its best stage and micro-batch.
struct Strategy {
  std::string name;
  HeteroPlan plan;  ///< without devices where nothing fits
};

/// Even split: the same micro-batch and share for all (DeepSpeed); the same on the strongest, and
/// on the weakest, kind alone; batches in proportion to peak FLOP/s (Whale); Poplar's, batches by
/// measured curves and even shares; Cephalo's, batches by curves and shares by memory.
std::vector<Strategy> OtherStrategies(const PlanProblem& problem);

}  // namespace pando
