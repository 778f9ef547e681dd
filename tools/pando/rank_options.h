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
  std::string micro_batch;  ///< numbers with commas between them; empty: not given
  std::string shares;
  std::string plan;  ///< a file that says all this
  bool global_batch_given = false;
  RankGroupOptions group;

  /// Whether the plan is to be made when the ranks have met.
  bool automatic() const { return plan == "auto"; }
};

/// The numbers of a list as "8,8,4". Throws InvalidArgument, naming the option, for what isn't one.
std::vector<double> ParseList(const char* option, const std::string& text);

/// Declares --zero-stage, --shards, --plan, --check-replicas, --interface and --timeout.
/// (--micro-batch is declared with the batch.)
void AddRankOptions(CLI::App& command, RankOptions& options, TrainerOptions& trainer);

/// Fills in what the text of a plan says; `path` is where it comes from, for errors. Throws
/// InvalidArgument for one that isn't for so many ranks.
void UsePlan(const std::string& text, const std::string& path, int rank, int ranks,
             TrainerOptions& trainer);

/// Fills in stage, shares and batches of `trainer`, and the rank's recompute if a plan says it.
/// Throws InvalidArgument for numbers that don't fit so many ranks.
void SpreadOverRanks(const RankOptions& options, int rank, int ranks, TrainerOptions& trainer);

}  // namespace pando
