#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace pando {

/// How long a micro-batch takes, by its number of samples, from a few measured sizes: made monotone
/// by isotonic regression (pool adjacent violators), then joined by a monotone cubic (Fritsch and
/// Carlson, SIAM J. Numer. Anal. 17, 1980), which neither overshoots nor bends where points don't.
class TimeCurve {
 public:
  struct Point {
    int64_t batch;   ///< at least 1
    double seconds;  ///< above 0
  };

  /// Of nothing: no micro-batch can be run.
  TimeCurve() : seconds_{0} {}
  /// Points in any order; several of one size count as their mean. InvalidArgument for none, and
  /// for sizes and times that can't be.
  static absl::StatusOr<TimeCurve> Fit(std::vector<Point> points);

  /// The largest size measured.
  int64_t largest() const { return static_cast<int64_t>(seconds_.size()) - 1; }
  /// 0 for an empty micro-batch. `batch` is from 0 to largest().
  double At(int64_t batch) const { return seconds_[static_cast<size_t>(batch)]; }
  /// Of all sizes from 0 to largest().
  absl::Span<const double> seconds() const { return seconds_; }

 private:
  std::vector<double> seconds_;
};

}  // namespace pando
