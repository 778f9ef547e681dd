#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dist/zero/batch_plan.h"

namespace pando {

/// How a step is spread over ranks: what `pando train --plan` takes.
struct TrainPlan {
  int zero_stage = 0;
  BatchPlan batches = {};
  std::vector<double> shares;        ///< of the flat space, one per rank; none: even
  std::vector<bool> recompute = {};  ///< one per rank; none: as each is told otherwise
};

/// JSON that a person can read and edit, a line per rank:
///
///     {"zero_stage": 2, "ranks": [
///       {"micro_batch": 8, "micro_steps": 2, "last_micro_batch": 6, "share": 0.7},
///       {"micro_batch": 2, "micro_steps": 2, "last_micro_batch": 2, "share": 0.3}]}
///
/// Ranks may also have "recompute": true or false, all or none of them.
std::string FormatPlan(const TrainPlan& plan);
/// InvalidArgument, naming rank and field, for what isn't a plan or doesn't fit together.
absl::StatusOr<TrainPlan> ParsePlan(const std::string& text);

}  // namespace pando
