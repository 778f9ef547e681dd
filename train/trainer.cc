#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dist/launch/progress_page.h"
#include "engine/error.h"
#include "engine/tape.h"

namespace pando {
namespace {

TrainerOptions Completed(TrainerOptions options, const LanguageModel& model, int ranks) {
  if (options.length == 0) options.length = model.context();
  options.schedule.steps = options.steps;
  options.step.seed = options.seed;
  options.zero.dtype = options.precision;
  if (options.batches.ranks.empty()) {
    Require(options.micro_batch > 0, "micro-batch: ", options.micro_batch, " must be positive");
    options.micro_batch = std::min(options.micro_batch, options.global_batch);
    options.batches =
        SpreadBatch(options.global_batch,
                    std::vector<int64_t>(static_cast<size_t>(ranks), options.micro_batch));
  }
  Require(static_cast<int>(options.batches.ranks.size()) == ranks, "batches are planned for ",
          options.batches.ranks.size(), " ranks, not for ", ranks);
  options.batches.Check(options.zero.stage);
  Require(options.batches.global_batch() == options.global_batch, "the ranks' batches add up to ",
          options.batches.global_batch(), " samples, not to the global batch of ",
          options.global_batch);
  return options;
}

int RanksOf(const Communicator* communicator) {
  return communicator == nullptr ? 1 : communicator->size();
}

/// Samples of the largest micro-batch.
int64_t Largest(const std::vector<int64_t>& micro_batches) {
  return std::max<int64_t>(1, *std::max_element(micro_batches.begin(), micro_batches.end()));
}

const TrainerOptions& Checked(const TrainerOptions& o, const LanguageModel& model,
                              const TokenDataset& training) {
  Require(o.steps >= 0, "steps: ", o.steps, " is negative");
  Require(o.length > 0 && o.length <= model.context(), "samples of ", o.length,
          " tokens for a model whose context is ", model.context());
  Require(training.size() > o.length, "the training data has ", training.size(),
          " tokens, too few for a context of ", o.length, ": use more data or a shorter context");
  return o;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Trainer::Trainer(LanguageModel& model, const ParameterRegistry& registry, Device& device,
                 TokenDataset training, TokenDataset validation, const TrainerOptions& options,
                 Communicator* communicator)
    : model_(model),
      options_(Checked(Completed(options, model, RanksOf(communicator)), model, training)),
      training_(std::move(training)),
      validation_(std::move(validation)),
      order_(options_.seed, training_.size(), options_.length),
      parameters_(registry, model.units(), options_.zero, communicator, device),
      micro_batches_(options_.batches.MicroBatches(parameters_.rank())),
      step_(model, parameters_, options_.step, Largest(micro_batches_), options_.length),
      samples_(options_.batches.ranks[static_cast<size_t>(parameters_.rank())].samples()),
      tokens_(samples_ * options_.length),
      targets_(tokens_.size()) {
  model.SetRecompute(options_.recompute);
  if (options_.initialize) parameters_.Initialize(options_.seed);
}

StepReport Trainer::RunStep(int64_t step) {
  ReportStep(step);
  ReportPhase(Phase::kForward);
  const auto start = std::chrono::steady_clock::now();
  const int64_t first =
      step * options_.global_batch + options_.batches.FirstSample(parameters_.rank());
  FillBatch(training_, order_, first, tokens_, targets_);
  StepReport report;
  report.step = step;
  report.learning_rate = options_.schedule.At(step);
  report.result = step_.Run({first, samples_, options_.length, tokens_, targets_}, micro_batches_,
                            step, report.learning_rate);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto tokens = static_cast<double>(options_.global_batch * options_.length);
  report.tokens_per_second = tokens / report.seconds;
  report.flops_per_second = report.tokens_per_second * model_.FlopsPerToken(options_.length);
  return report;
}

TrainingSummary Trainer::Run(TrainerHooks& hooks) {
  try {
    return RunSteps(hooks);
  } catch (const std::exception& e) {
    // So that no peer waits for a rank that has given up.
    if (Communicator* peers = parameters_.communicator(); peers != nullptr) {
      peers->Abort(absl::StrCat("rank ", peers->rank(), ": ", e.what()));
    }
    throw;
  }
}

/// A signal may reach one rank before the others, or only one.
bool Trainer::AnyRankStops(TrainerHooks& hooks) {
  double stops = hooks.StopRequested() ? 1 : 0;
  parameters_.AllReduce({&stops, 1}, ReduceOp::kMax);
  return stops != 0;
}

TrainingSummary Trainer::RunSteps(TrainerHooks& hooks) {
  TrainingSummary summary;
  std::vector<double> seconds;
  int64_t step = start_step_;
  const auto evaluate = [&](int64_t batches) {
    const std::optional<double> loss = EvaluateUnless(hooks, batches);
    if (loss) hooks.OnEvaluation(step, *loss);
    summary.stopped_early = !loss;
    return loss;
  };
  while (step < options_.steps && !summary.stopped_early) {
    // A resumed run repeats the evaluation it may have been stopped in.
    if (options_.eval_interval > 0 && step % options_.eval_interval == 0 && step > 0 &&
        validation_.size() > 1 && !evaluate(options_.eval_batches)) {
      break;
    }
    const StepReport report = RunStep(step);
    seconds.push_back(report.seconds);
    summary.train_loss = report.result.loss;
    hooks.OnStep(report);
    hooks.OnStepDone(++step);
    if (options_.check_replicas > 0 && step % options_.check_replicas == 0) {
      parameters_.CheckReplicas();
    }
    summary.stopped_early = AnyRankStops(hooks);
  }
  summary.next_step = step;
  summary.step_seconds_median = Median(seconds);
  if (summary.step_seconds_median > 0) {
    summary.tokens_per_second =
        static_cast<double>(options_.global_batch * options_.length) / summary.step_seconds_median;
    summary.flops_per_second = summary.tokens_per_second * model_.FlopsPerToken(options_.length);
  }
  if (!summary.stopped_early && validation_.size() > 1) summary.val_loss = evaluate(0);
  return summary;
}

/// Nothing if a hook asks to stop. Each rank takes as many windows at once as it has samples in a
/// micro-batch, in the order of ranks, and all do so equally often.
std::optional<double> Trainer::EvaluateUnless(TrainerHooks& hooks, int64_t batches) {
  const NoGrad no_grad;
  ReportPhase(Phase::kEvaluation);
  int64_t before = 0, at_once = 0;  // windows of the ranks before this one, and of all
  for (int r = 0; r < parameters_.ranks(); ++r) {
    if (r == parameters_.rank()) before = at_once;
    at_once += Largest(options_.batches.MicroBatches(r));
  }
  const int64_t samples = Largest(micro_batches_);
  const ValidationOrder order(validation_.size(), options_.length, batches * at_once);
  std::vector<int32_t> tokens(samples * options_.length), targets(tokens.size());
  double sums[] = {0, 0};  // loss, targets
  for (int64_t first = 0; first < order.windows(); first += at_once) {
    if (AnyRankStops(hooks)) return std::nullopt;
    if (first + before >= order.windows()) {
      parameters_.Forward(nullptr);
      continue;
    }
    sums[1] += static_cast<double>(FillBatch(validation_, order, first + before, tokens, targets));
    parameters_.Forward([&] {
      const Shape shape{samples, options_.length};
      Device& device = parameters_.device();
      sums[0] += model_
                     .Loss(Tensor::FromHost(tokens, shape, device),
                           Tensor::FromHost(targets, shape, device), StepContext{}, 1.0)
                     .Item();
    });
  }
  parameters_.device().CheckErrorFlag();
  parameters_.AllReduce(sums);
  return sums[0] / sums[1];
}

int64_t Trainer::EstimateMemory(const LanguageModel& model, const ParameterRegistry& registry,
                                const TrainerOptions& options, int rank, int ranks) {
  const TrainerOptions o = Completed(options, model, ranks);
  const int64_t flat = FlatLayout(registry.parameters()).size();
  const ShardMap shards = o.zero.shares.empty() ? ShardMap::Even(flat, ranks)
                                                : ShardMap::FromShares(flat, o.zero.shares);
  return ZeroStateBytes(ranks == 1 ? 0 : o.zero.stage, o.precision, flat, shards.Of(rank).size()) +
         model.ActivationBytes(Largest(o.batches.MicroBatches(rank)), o.length,
                               SizeOf(o.precision));
}

}  // namespace pando
