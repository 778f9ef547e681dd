#pragma once

// The loop that trains a language model: batches in their order, steps, evaluation, reports. It
// knows no files: what happens with reports and when to save is the caller's, by TrainerHooks.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dist/zero/batch_plan.h"
#include "dist/zero/zero.h"
#include "engine/module.h"
#include "engine/schedule.h"
#include "models/language_model.h"
#include "train/batch.h"
#include "train/sample_order.h"
#include "train/token_dataset.h"
#include "train/train_step.h"

namespace pando {

struct TrainerOptions {
  int64_t steps = 1000;
  int64_t global_batch = 12;
  /// Samples of each micro-batch of each rank; the last may be smaller.
  int64_t micro_batch = 12;
  /// Which rank takes what of a batch; without ranks: as even as can be, by the two above.
  BatchPlan batches;
  ZeroOptions zero;  ///< its dtype is set from below
  /// Steps after which ranks compare what should be the same; 0: never.
  int64_t check_replicas = 100;
  /// Tokens of a sample; 0: the model's context.
  int64_t length = 0;
  Schedule schedule;            ///< its `steps` is set from above
  TrainStepOptions step;        ///< its seed is set from below
  uint64_t seed = 1;            ///< of initial values, order of the data, dropout
  int64_t eval_interval = 250;  ///< steps; 0: never before the end
  int64_t eval_batches = 0;     ///< of micro_batch windows, in the middle of a run; 0: all
  bool recompute = false;
  DType precision = DType::kF32;
  /// Whether the parameters get first values; false where all are loaded before Run: a second at
  /// 124 million of them.
  bool initialize = true;
};

/// One step, for those who watch.
struct StepReport {
  int64_t step = 0;  ///< counted from 0
  StepResult result;
  double learning_rate = 0;
  double seconds = 0;
  double tokens_per_second = 0;
  double flops_per_second = 0;
};

/// What the caller does as training goes on; all are called between steps, on the training thread.
class TrainerHooks {
 public:
  virtual ~TrainerHooks() = default;
  virtual void OnStep(const StepReport& /*report*/) {}
  /// After an evaluation before step `step`: mean loss on the validation tokens looked at.
  virtual void OnEvaluation(int64_t /*step*/, double /*loss*/) {}
  /// `next_step` steps are done: a chance to save.
  virtual void OnStepDone(int64_t /*next_step*/) {}
  /// Whether to finish early, asked after every step and every micro-batch of an evaluation.
  virtual bool StopRequested() { return false; }
};

/// How a run ended.
struct TrainingSummary {
  int64_t next_step = 0;           ///< steps done since the beginning of the run
  bool stopped_early = false;      ///< a hook asked to
  double train_loss = 0;           ///< of the last step
  std::optional<double> val_loss;  ///< on the whole validation split; none without one, or if
                                   ///< stopped early
  double step_seconds_median = 0;
  double tokens_per_second = 0;  ///< by the median step
  double flops_per_second = 0;
};

/// Trains one model, on one device or as one rank of a group. All ranks do the same: hooks hear the
/// same numbers on each.
class Trainer {
 public:
  /// Places the parameters of `registry`, which are the model's, and initialises them unless the
  /// options say that they will be loaded (until then they are 0). `validation` may be empty.
  /// `communicator`, null for one rank, outlives this. Throws InvalidArgument where options, data
  /// and model don't fit, or ranks don't agree; OutOfMemory; PeerLost.
  Trainer(LanguageModel& model, const ParameterRegistry& registry, Device& device,
          TokenDataset training, TokenDataset validation, const TrainerOptions& options,
          Communicator* communicator = nullptr);

  /// Trains from start_step to the end and evaluates. Throws NonFinite, OutOfMemory, PeerLost and
  /// what hooks throw; peers then lose this rank at once.
  TrainingSummary Run(TrainerHooks& hooks);
  /// The same without anybody watching.
  TrainingSummary Run() {
    TrainerHooks nobody;
    return Run(nobody);
  }

  /// Mean loss on up to `batches` micro-batches of validation windows; 0: on all, each target once.
  double Evaluate(int64_t batches) {
    TrainerHooks nobody;
    return *EvaluateUnless(nobody, batches);
  }

  /// Parameters, optimizer state and loss scale, and the step to go on from: what a checkpoint
  /// holds.
  Zero& parameters() { return parameters_; }
  /// Null without loss scaling.
  LossScale* loss_scale() { return step_.loss_scale(); }
  void set_start_step(int64_t step) { start_step_ = step; }

  const TrainerOptions& options() const { return options_; }
  /// Which training window is which sample.
  const SampleOrder& order() const { return order_; }

  /// Bytes that training will need on the device of rank `rank` of `ranks`, before it starts:
  /// parameters, gradients, optimizer state, and the model's estimate of its activations.
  static int64_t EstimateMemory(const LanguageModel& model, const ParameterRegistry& registry,
                                const TrainerOptions& options, int rank = 0, int ranks = 1);

 private:
  TrainingSummary RunSteps(TrainerHooks& hooks);
  bool AnyRankStops(TrainerHooks& hooks);
  StepReport RunStep(int64_t step);
  std::optional<double> EvaluateUnless(TrainerHooks& hooks, int64_t batches);

  LanguageModel& model_;
  TrainerOptions options_;
  TokenDataset training_;
  TokenDataset validation_;
  TrainingOrder order_;
  Zero parameters_;
  std::vector<int64_t> micro_batches_;  // of this rank
  TrainStep step_;
  int64_t samples_;                        // of a global batch that are this rank's
  std::vector<int32_t> tokens_, targets_;  // of those
  int64_t start_step_ = 0;
};

}  // namespace pando
