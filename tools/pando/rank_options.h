#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/pando/rank_group.h"
#include "train/trainer.h"

namespace pando {

/// How a run is spread over ranks, as options say it: one value for all ranks, or one per rank.
struct RankOptions {
  std::vector<int64_t> micro_batch;
  std::vector<double> shares;
  std::string plan;  ///< a file that says all this
  bool global_batch_given = false;
  RankGroupOptions group;
};

/// Declares --zero-stage, --shards, --plan, --check-replicas, --interface, --port-range and
/// --timeout. (--micro-batch is declared with the batch.)
void AddRankOptions(CLI::App& command, RankOptions& options, TrainerOptions& trainer);

/// Fills in stage, shares and batches of `trainer` for so many ranks. Throws InvalidArgument for
/// numbers that don't fit.
void SpreadOverRanks(const RankOptions& options, int ranks, TrainerOptions& trainer);

}  // namespace pando
