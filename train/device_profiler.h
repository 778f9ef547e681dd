#pragma once

// How fast a device computes a model and how large a micro-batch it takes: measured on the real
// model and optimizer, on random tokens.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dist/hetero/plan_problem.h"
#include "dist/zero/zero.h"
#include "models/language_model.h"

namespace pando {

struct ProfileOptions {
  int64_t length = 0;    ///< tokens of a sample
  int64_t largest = 64;  ///< samples to try in a micro-batch at most
  /// Memory that is left free, of the device's budget: what a longer run may need.
  double margin = 0.05;
  /// Sizes are not timed any more once so much has gone by, nor tried that would take longer.
  double seconds = 60;
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct MeasuredDevice {
  Compute compute;  ///< its curve reaches to the largest micro-batch found
  std::vector<TimeCurve::Point> points;
  double optimizer_seconds = 0;  ///< of an element
  int64_t memory = 0;            ///< bytes that may be used: the budget less the margin
};

/// Runs steps of `model`, whose `parameters` are initialised and are not worth anything afterwards.
/// The largest micro-batch is found by doubling, then bisection, on OutOfMemory; each size is timed
/// three times, the middle one counts. Leaves no memory behind. Throws OutOfMemory if not even one
/// sample fits.
MeasuredDevice ProfileDevice(LanguageModel& model, Zero& parameters, const ProfileOptions& options);

}  // namespace pando
