#pragma once

#include <optional>

#include "dist/hetero/group_planner.h"
#include "dist/hetero/plan_problem.h"

namespace pando {

/// What a plan may choose; all of it by default.
struct PlanFreedom {
  ShareRule shares = ShareRule::kFree;
  /// Whether devices may be left out.
  bool members = true;
  /// Whether recompute may be chosen, or whatever else there is beyond each device's first way.
  bool computes = true;
};

/// A plan close to the best, for thousands of devices of a few kinds; none if nothing fits. Devices
/// of one kind are planned as one: the time of a micro-step is found by bisection, samples are
/// given up for the memory that shards need where they free most, and the slowest kinds are left
/// out as far as that helps.
std::optional<HeteroPlan> FastPlan(const PlanProblem& problem, const PlanFreedom& freedom = {});

}  // namespace pando
