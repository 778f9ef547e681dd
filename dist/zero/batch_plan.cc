#include "dist/zero/batch_plan.h"

#include <algorithm>
#include <numeric>

#include "engine/error.h"

namespace pando {

int64_t BatchPlan::global_batch() const { return FirstSample(static_cast<int>(ranks.size())); }

int64_t BatchPlan::FirstSample(int rank) const {
  int64_t first = 0;
  for (int r = 0; r < rank; ++r) first += ranks.at(static_cast<size_t>(r)).samples();
  return first;
}

std::vector<int64_t> BatchPlan::MicroBatches(int rank) const {
  const RankBatch& batch = ranks.at(static_cast<size_t>(rank));
  if (batch.micro_steps == 0) return {0};
  std::vector<int64_t> sizes(static_cast<size_t>(batch.micro_steps), batch.micro_batch);
  sizes.back() = batch.last_micro_batch;
  return sizes;
}

void BatchPlan::Check(int zero_stage) const {
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankBatch& b = ranks[r];
    Require(b.micro_batch >= 0 && b.micro_steps >= 0 && b.last_micro_batch >= 0 &&
                b.last_micro_batch <= b.micro_batch,
            "rank ", r, ": ", b.micro_steps, " micro-steps of ", b.micro_batch,
            " samples, the last of ", b.last_micro_batch);
    Require(zero_stage < 2 || b.micro_steps == ranks[0].micro_steps, "rank ", r, " has ",
            b.micro_steps, " micro-steps, rank 0 ", ranks[0].micro_steps,
            ": at ZeRO stages 2 and 3 all ranks must have the same number");
  }
  Require(global_batch() > 0, "no rank has any samples");
}

BatchPlan SpreadBatch(int64_t global_batch, const std::vector<int64_t>& micro_batch) {
  Require(global_batch > 0, "global batch: ", global_batch, " must be positive");
  for (const int64_t m : micro_batch) Require(m >= 0, "micro-batch: ", m, " is negative");
  const int64_t at_once = std::accumulate(micro_batch.begin(), micro_batch.end(), int64_t{0});
  Require(at_once > 0, "micro-batch: some rank's must be positive");
  const int64_t steps = (global_batch + at_once - 1) / at_once;
  int64_t left = global_batch - (steps - 1) * at_once;
  int64_t takers = at_once;
  BatchPlan plan;
  for (const int64_t m : micro_batch) {
    // In proportion to what this rank and those behind it take, so that nothing is left over.
    const int64_t last = takers == 0 ? 0 : (left * m + takers - 1) / takers;
    plan.ranks.push_back({m, steps, last});
    left -= last;
    takers -= m;
  }
  return plan;
}

}  // namespace pando
