#pragma once

// Devices of one kind that do the same: what large clusters are planned by.

#include <cstdint>
#include <optional>
#include <vector>

#include "dist/hetero/time_curve.h"

namespace pando {

/// `count` devices that each take up to `most` samples at once, in so much time.
struct Takers {
  const TimeCurve* curve;
  int64_t most;
  int64_t count;
};

/// The most samples, up to `most`, that a device computes in `seconds`.
int64_t MostWithin(const TimeCurve& curve, double seconds, int64_t most);

/// How long it takes at least until all have together computed `samples`, which they can.
double SoonestWithin(int64_t samples, const std::vector<Takers>& takers);

/// `count` devices that can each hold up to a share of `most`, and update all of it in `seconds`.
struct Holders {
  double most;
  double seconds;
  int64_t count;
};

/// A share for each of the holders, together 1, such that the slowest is done soonest; none if they
/// can't hold it all.
std::optional<std::vector<double>> ShareOut(const std::vector<Holders>& holders);

}  // namespace pando
