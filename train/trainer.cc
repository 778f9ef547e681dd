#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/error.h"
#include "engine/tape.h"

namespace pando {
namespace {

TrainerOptions Completed(TrainerOptions options, const LanguageModel& model) {
  if (options.length == 0) options.length = model.context();
  options.schedule.steps = options.steps;
  options.step.seed = options.seed;
  options.micro_batch = std::min(options.micro_batch, options.global_batch);
  return options;
}

const TrainerOptions& Checked(const TrainerOptions& o, const LanguageModel& model,
                              const TokenDataset& training) {
  Require(o.steps >= 0, "steps: ", o.steps, " is negative");
  Require(o.global_batch > 0, "global batch: ", o.global_batch, " must be positive");
  Require(o.micro_batch > 0, "micro-batch: ", o.micro_batch, " must be positive");
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
                 TokenDataset training, TokenDataset validation, const TrainerOptions& options)
    : model_(model),
      options_(Checked(Completed(options, model), model, training)),
      training_(std::move(training)),
      validation_(std::move(validation)),
      order_(options_.seed, training_.size(), options_.length),
      parameters_(registry, options_.precision, device),
      step_(model, parameters_, options_.step, options_.micro_batch, options_.length),
      micro_batches_(CutBatch(options_.global_batch, options_.micro_batch)),
      tokens_(options_.global_batch * options_.length),
      targets_(tokens_.size()) {
  model.SetRecompute(options_.recompute);
  if (options_.initialize) parameters_.Initialize(options_.seed);
}

StepReport Trainer::RunStep(int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t first = step * options_.global_batch;
  FillBatch(training_, order_, first, tokens_, targets_);
  StepReport report;
  report.step = step;
  report.learning_rate = options_.schedule.At(step);
  report.result = step_.Run({first, options_.global_batch, options_.length, tokens_, targets_},
                            micro_batches_, step, report.learning_rate);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double tokens = static_cast<double>(tokens_.size());
  report.tokens_per_second = tokens / report.seconds;
  report.flops_per_second = report.tokens_per_second * model_.FlopsPerToken(options_.length);
  return report;
}

TrainingSummary Trainer::Run(TrainerHooks& hooks) {
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
    summary.stopped_early = hooks.StopRequested();
  }
  summary.next_step = step;
  summary.step_seconds_median = Median(seconds);
  if (summary.step_seconds_median > 0) {
    summary.tokens_per_second = static_cast<double>(tokens_.size()) / summary.step_seconds_median;
    summary.flops_per_second = summary.tokens_per_second * model_.FlopsPerToken(options_.length);
  }
  if (!summary.stopped_early && validation_.size() > 1) summary.val_loss = evaluate(0);
  return summary;
}

/// Nothing if a hook asks to stop.
std::optional<double> Trainer::EvaluateUnless(TrainerHooks& hooks, int64_t batches) {
  const NoGrad no_grad;
  const int64_t samples = options_.micro_batch;
  const ValidationOrder order(validation_.size(), options_.length, batches * samples);
  Device& device = parameters_.device();
  std::vector<int32_t> tokens(samples * options_.length), targets(tokens.size());
  double loss = 0;
  int64_t counted = 0;
  for (int64_t first = 0; first < order.windows(); first += samples) {
    if (hooks.StopRequested()) return std::nullopt;
    counted += FillBatch(validation_, order, first, tokens, targets);
    const Shape shape{samples, options_.length};
    loss += model_
                .Loss(Tensor::FromHost(tokens, shape, device),
                      Tensor::FromHost(targets, shape, device), StepContext{}, 1.0)
                .Item();
  }
  device.CheckErrorFlag();
  return loss / static_cast<double>(counted);
}

int64_t Trainer::EstimateMemory(const LanguageModel& model, const ParameterRegistry& registry,
                                const TrainerOptions& options) {
  const TrainerOptions o = Completed(options, model);
  const int64_t flat = FlatLayout(registry.parameters()).size();
  const bool narrow = SizeOf(o.precision) < 4;
  // Gradients, two moments, f32 values; and the narrow copy, if any.
  const int64_t state = flat * (4 + 8 + 4 + (narrow ? SizeOf(o.precision) : 0));
  return state + model.ActivationBytes(o.micro_batch, o.length, SizeOf(o.precision));
}

}  // namespace pando
