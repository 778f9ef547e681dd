#pragma once

// Which rank computes which samples of a step.

#include <cstdint>
#include <vector>

namespace pando {

/// One rank's part of every global batch: `micro_steps` micro-batches of `micro_batch` samples, but
/// for the last, of `last_micro_batch` (0 where the rank has nothing in it).
struct RankBatch {
  int64_t micro_batch = 0;
  int64_t micro_steps = 0;
  int64_t last_micro_batch = 0;
  int64_t samples() const {
    return micro_steps == 0 ? 0 : (micro_steps - 1) * micro_batch + last_micro_batch;
  }
};

/// All ranks' parts. Rank r's samples follow rank r - 1's, so that samples keep their global index
/// whoever computes them.
struct BatchPlan {
  std::vector<RankBatch> ranks;

  int64_t global_batch() const;
  /// Index, within the global batch, of the rank's first sample.
  int64_t FirstSample(int rank) const;
  /// Sizes of the rank's micro-batches: at least one, if only of size 0.
  std::vector<int64_t> MicroBatches(int rank) const;
  /// Throws InvalidArgument unless numbers make sense, and fit the stage: at 2 and 3 all ranks have
  /// the same number of micro-steps, as they communicate in each.
  void Check(int zero_stage) const;
};

/// Spreads `global_batch` samples over ranks that take up to micro_batch[r] samples at once: in as
/// few micro-steps as that allows, the last one smaller for all in proportion. Throws
/// InvalidArgument.
BatchPlan SpreadBatch(int64_t global_batch, const std::vector<int64_t>& micro_batch);

}  // namespace pando
