#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dist/hetero/plan_problem.h"

namespace pando {

/// What was measured of a device for a model: what `pando profile` writes and `pando plan` reads.
struct MeasuredProfile {
  std::string device;  ///< "cuda:0 (NVIDIA T4, ...)"
  std::string model;   ///< in words
  int64_t length = 0;  ///< tokens of a sample
  DType dtype = DType::kF32;
  std::vector<PlanUnit> units;
  int64_t memory = 0;            ///< bytes that may be used
  double optimizer_seconds = 0;  ///< of an element
  struct Way {
    bool recompute = false;
    int64_t fixed_bytes = 0, bytes_per_sample = 0;
    std::vector<TimeCurve::Point> points;
  };
  std::vector<Way> ways;
};

/// JSON.
std::string FormatProfile(const MeasuredProfile& profile);
/// InvalidArgument, naming the field, for what isn't one.
absl::StatusOr<MeasuredProfile> ParseProfile(const std::string& text);

/// The device as planners know it, without name, kind, node and links.
absl::StatusOr<DeviceProfile> ToDevice(const MeasuredProfile& profile);

}  // namespace pando
