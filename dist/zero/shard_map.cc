#include "dist/zero/shard_map.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/error.h"

namespace pando {

ShardMap::ShardMap(std::vector<int64_t> cuts) : cuts_(std::move(cuts)) {
  Require(cuts_.size() >= 2 && cuts_.front() == 0, "shards: cuts must start at 0");
  for (size_t i = 1; i < cuts_.size(); ++i) {
    Require(cuts_[i] >= cuts_[i - 1], "shards: the cut at ", cuts_[i], " comes after ",
            cuts_[i - 1]);
    Require(cuts_[i] % kFlatAlignment == 0, "shards: the cut at ", cuts_[i],
            " is not at a multiple of ", kFlatAlignment);
  }
}

ShardMap ShardMap::FromShares(int64_t size, absl::Span<const double> shares) {
  double all = 0;
  for (const double share : shares) {
    Require(share >= 0 && std::isfinite(share), "shards: a share of ", share);
    all += share;
  }
  Require(all > 0, "shards: somebody must hold something, but all shares are 0");
  std::vector<int64_t> cuts = {0};
  double sum = 0;
  const int64_t blocks = size / kFlatAlignment;
  for (const double share : shares) {
    sum += share;
    cuts.push_back(std::llround(static_cast<double>(blocks) * std::min(sum / all, 1.0)) *
                   kFlatAlignment);
  }
  // The last that has a share ends the space, whatever rounding made of the sum.
  for (size_t r = shares.size(); r > 0; --r) {
    cuts[r] = size;
    if (shares[r - 1] > 0) break;
  }
  return ShardMap(std::move(cuts));
}

ShardMap ShardMap::Even(int64_t size, int ranks) {
  return FromShares(size, std::vector<double>(static_cast<size_t>(ranks), 1.0));
}

FlatInterval ShardMap::Of(int rank) const {
  const auto r = static_cast<size_t>(rank);
  return {cuts_.at(r), cuts_.at(r + 1)};
}

std::vector<int64_t> ShardMap::Counts(FlatInterval interval) const {
  std::vector<int64_t> counts;
  counts.reserve(cuts_.size() - 1);
  for (int r = 0; r < ranks(); ++r) counts.push_back(Intersection(Of(r), interval).size());
  return counts;
}

FlatInterval Intersection(FlatInterval a, FlatInterval b) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return begin < end ? FlatInterval{begin, end} : FlatInterval{a.begin, a.begin};
}

}  // namespace pando
