#pragma once

// What is to be planned, and what a plan is.

#include <cstdint>
#include <string>
#include <vector>

#include "dist/hetero/time_curve.h"
#include "dist/zero/batch_plan.h"
#include "engine/types.h"

namespace pando {

/// How a device computes the model, with or without recompute.
struct Compute {
  bool recompute = false;
  /// Forward and backward of a micro-batch.
  TimeCurve seconds;
  /// Memory beside the state: whatever the micro-batch, and for each of its samples.
  int64_t fixed_bytes = 0;
  int64_t bytes_per_sample = 0;
};

/// A way to another device.
struct Link {
  double bytes_per_second = 0;
  double latency = 0;  ///< seconds for a message to get there
};

struct DeviceProfile {
  std::string name;
  /// Devices of one kind have the same profile: set by whoever knows, to be planned together.
  int kind = 0;
  std::vector<Compute> computes;  ///< to choose from
  int64_t memory = 0;             ///< bytes that may be used
  double optimizer_seconds = 0;   ///< of AdamW on an element
  int node = 0;                   ///< the machine that it is in
  Link within, between;           ///< to a device of its node; of another one
  double peak_flops = 0;  ///< as in its data sheet; for comparison with planners that use it
};

/// A segment of the model, in the order of forward. The first one, the embedding, is the last whose
/// gradients are complete.
struct PlanUnit {
  int64_t elements = 0;
  int gathers = 2;  ///< in a micro-step of stage 3: one in forward, the others in backward
};

struct PlanProblem {
  int64_t global_batch = 0;
  std::vector<PlanUnit> units;
  DType dtype = DType::kBF16;              ///< of computation
  double forward_part = 1.0 / 3;           ///< of a micro-batch's time
  std::vector<int> stages = {0, 1, 2, 3};  ///< to choose from
  std::vector<DeviceProfile> devices;

  int64_t parameters() const {
    int64_t sum = 0;
    for (const PlanUnit& u : units) sum += u.elements;
    return sum;
  }
};

/// What one device does. One that isn't used is in no collective either.
struct DevicePlan {
  bool used = false;
  int compute = 0;  ///< index into its computes
  RankBatch batch = {};
  double share = 0;  ///< of the flat space; the used devices' add up to 1
};

struct HeteroPlan {
  int stage = 0;
  std::vector<DevicePlan> devices;
  double seconds = 0;  ///< of a step, predicted
};

}  // namespace pando
