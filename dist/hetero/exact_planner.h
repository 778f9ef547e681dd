#pragma once

#include <optional>

#include "dist/hetero/plan_problem.h"

namespace pando {

/// Whether ExactPlan is done in about a second.
bool IsSmall(const PlanProblem& problem);

/// The plan of all plans whose predicted step is shortest, by going through them; none if nothing
/// fits. Its time grows exponentially with the number of devices.
std::optional<HeteroPlan> ExactPlan(const PlanProblem& problem);

}  // namespace pando
