#pragma once

// Who holds which part of the flat parameter space: one interval per rank, of any sizes.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/flat_parameters.h"

namespace pando {

/// One interval of the flat space per rank, in the order of ranks, without gaps; empty ones are
/// allowed. Cuts fall on multiples of kFlatAlignment.
class ShardMap {
 public:
  /// Cuts `size` elements in proportion to `shares` (at least 0, sum above 0), each cut to the
  /// nearest multiple of kFlatAlignment. Throws InvalidArgument.
  static ShardMap FromShares(int64_t size, absl::Span<const double> shares);
  /// The same share for each of `ranks`.
  static ShardMap Even(int64_t size, int ranks);
  /// From the ranks + 1 ends of intervals: cuts[0] = 0, ascending. Throws InvalidArgument.
  explicit ShardMap(std::vector<int64_t> cuts);

  int ranks() const { return static_cast<int>(cuts_.size()) - 1; }
  int64_t size() const { return cuts_.back(); }
  FlatInterval Of(int rank) const;
  /// How many elements of `interval` each rank holds.
  std::vector<int64_t> Counts(FlatInterval interval) const;
  const std::vector<int64_t>& cuts() const { return cuts_; }

 private:
  std::vector<int64_t> cuts_;
};

/// The elements in both; where there are none, an empty interval at the start of `a`.
FlatInterval Intersection(FlatInterval a, FlatInterval b);

}  // namespace pando
