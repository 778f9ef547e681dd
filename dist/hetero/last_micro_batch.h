#pragma once

#include <cstdint>
#include <vector>

#include "dist/hetero/time_curve.h"
#include "dist/zero/batch_plan.h"

namespace pando {

struct LastMicroBatch {
  int64_t steps = 0;   ///< micro-steps, the last included
  double seconds = 0;  ///< that the slowest device computes in it
};

/// Where all devices make the same number of micro-steps: sets it, and the last micro-batches, such
/// that the last is over soonest. `batches` come with their micro-batches, `samples` in all.
LastMicroBatch SpreadLast(int64_t global_batch, int64_t samples,
                          const std::vector<const TimeCurve*>& curves,
                          std::vector<RankBatch>& batches);

}  // namespace pando
