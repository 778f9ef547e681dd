#include "tools/pando/rank_options.h"

#include <cmath>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "ckpt/file.h"
#include "dist/zero/plan_file.h"
#include "tools/pando/saved_model.h"

namespace pando {
namespace {

/// One value per rank.
std::vector<double> PerRank(const char* option, const std::string& text, int ranks) {
  std::vector<double> values = ParseList(option, text);
  if (values.size() == 1) values.resize(static_cast<size_t>(ranks), values[0]);
  Require(values.size() == static_cast<size_t>(ranks), option, " has ", values.size(),
          " values for ", ranks, " ranks: give one for all, or one per rank");
  return values;
}

}  // namespace

void UsePlan(const std::string& text, const std::string& path, int rank, int ranks,
             TrainerOptions& trainer) {
  const absl::StatusOr<TrainPlan> plan = ParsePlan(text);
  Require(plan.ok(), "--plan ", path, ": ", std::string(plan.status().message()));
  Require(plan->batches.ranks.size() == static_cast<size_t>(ranks), "--plan ", path, " is for ",
          plan->batches.ranks.size(), " ranks, but there are ", ranks);
  trainer.zero.stage = plan->zero_stage;
  trainer.zero.shares = plan->shares;
  if (!plan->recompute.empty()) trainer.recompute = plan->recompute[static_cast<size_t>(rank)];
  trainer.batches = plan->batches;
  trainer.global_batch = plan->batches.global_batch();
}

std::vector<double> ParseList(const char* option, const std::string& text) {
  std::vector<double> values;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    double value = 0;
    Require(absl::SimpleAtod(part, &value) && std::isfinite(value), option, " ", text,
            ": give a number, or numbers with commas between them");
    values.push_back(value);
  }
  return values;
}

void AddRankOptions(CLI::App& c, RankOptions& o, TrainerOptions& trainer) {
  const std::string group = "Several ranks (see pando launch)";
  c.add_option("--zero-stage", trainer.zero.stage,
               "what is kept in parts, one per rank: 0 nothing, 1 optimizer state, 2 also "
               "gradients, 3 also parameters")
      ->capture_default_str()
      ->check(CLI::Range(0, 3))
      ->group(group);
  c.add_option("--shards", o.shares,
               "each rank's part of what is kept in parts, as .5,.3,.2; "
               "default: even")
      ->group(group);
  c.add_option("--plan", o.plan,
               "file with stage, batches and parts of every rank; auto: measure and plan")
      ->group(group);
  c.add_option("--check-replicas", trainer.check_replicas,
               "steps after which ranks compare what should be the same bits; 0: never")
      ->capture_default_str()
      ->group(group);
  c.add_option("--interface", o.group.interface, "this rank's address for the others")
      ->capture_default_str()
      ->group(group);
  c.add_option("--timeout", o.group.timeout_seconds,
               "seconds after which a rank that doesn't answer is lost")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->group(group);
}

void SpreadOverRanks(const RankOptions& o, int rank, int ranks, TrainerOptions& trainer) {
  if (!o.plan.empty()) {
    Require(o.micro_batch.empty() && o.shares.empty() && (o.automatic() || !o.global_batch_given),
            "--plan says all about batches and parts: leave out --global-batch, --micro-batch and "
            "--shards");
    if (!o.automatic()) {
      UsePlan(ValueOrThrow(ReadFile(o.plan, int64_t{1} << 26)), o.plan, rank, ranks, trainer);
    }
    return;
  }
  if (!o.shares.empty()) trainer.zero.shares = PerRank("--shards", o.shares, ranks);
  if (o.micro_batch.empty()) {
    trainer.micro_batch = (trainer.global_batch + ranks - 1) / ranks;
    return;
  }
  const std::vector<double> numbers = PerRank("--micro-batch", o.micro_batch, ranks);
  const std::vector<int64_t> micro(numbers.begin(), numbers.end());
  if (!o.global_batch_given) {
    trainer.global_batch = std::accumulate(micro.begin(), micro.end(), int64_t{0});
  }
  trainer.batches = SpreadBatch(trainer.global_batch, micro);
}

}  // namespace pando
