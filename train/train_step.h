#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/zero/zero.h"
#include "engine/optimizer.h"
#include "models/language_model.h"
#include "train/batch_uploader.h"
#include "train/loss_scale.h"

namespace pando {

struct TrainStepOptions {
  double grad_clip = 1.0;  ///< largest gradient norm; 0: none
  uint64_t seed = 1;       ///< of dropout and stochastic rounding
  /// None: the default in f16, no scaling in other dtypes.
  std::optional<LossScaleOptions> loss_scale;
};

/// What one step came to.
struct StepResult {
  double loss = 0;  ///< mean over the targets of the global batch
  double grad_norm = 0;
  int64_t targets = 0;  ///< that counted
  /// No parameter was changed: no target counted, or gradients overflowed under the loss scale,
  /// which is then halved.
  bool skipped = false;
  std::optional<double> loss_scale;  ///< with which the step was done, if there is one
};

/// One optimizer step after the other: micro-batches forward and backward, clipping, AdamW. The
/// gradient is the sum over the global batch, all ranks' samples, divided by its number of targets,
/// so that the cut into ranks and micro-batches changes nothing but rounding. Ranks decide
/// together: what a step comes to is the same on all.
class TrainStep {
 public:
  /// `parameters` are the model's, initialised. Micro-batches have at most `max_samples` x `length`
  /// tokens. Throws OutOfMemory.
  TrainStep(LanguageModel& model, Zero& parameters, const TrainStepOptions& options,
            int64_t max_samples, int64_t length);

  /// One step on this rank's samples of the global batch, cut into micro-batches of the given sizes
  /// (which sum to them; at least one; 0 for none), at the given learning rate. `step` counts from
  /// 0 and draws the randomness. Throws NonFinite, naming the first bad tensor (with a loss scale,
  /// only if a smaller one can't help); OutOfMemory; PeerLost. On one rank these come before
  /// anything is changed, and leave this object ready for another step.
  StepResult Run(const HostBatch& batch, const std::vector<int64_t>& micro_batches, int64_t step,
                 double learning_rate);

  AdamW& optimizer() { return parameters_.optimizer(); }
  Zero& parameters() { return parameters_; }
  /// Null without loss scaling. Part of what a checkpoint holds.
  LossScale* loss_scale() { return loss_scale_ ? &*loss_scale_ : nullptr; }

 private:
  double ForwardBackward(const HostBatch& batch, const std::vector<int64_t>& micro_batches,
                         int64_t step, int64_t targets);
  void MicroBatches(const HostBatch& batch, const std::vector<int64_t>& micro_batches, int64_t step,
                    int64_t targets, std::vector<Tensor>& losses);
  Tensor ForwardBackward(const DeviceBatch& micro, int64_t step, double scale);
  double Scale() const { return loss_scale_ ? loss_scale_->value() : 1.0; }
  [[noreturn]] void ThrowNonFinite(const HostBatch& batch,
                                   const std::vector<int64_t>& micro_batches, int64_t step,
                                   int64_t targets, double loss, double norm);
  std::string FirstBadParameter();

  LanguageModel& model_;
  Zero& parameters_;
  TrainStepOptions options_;
  std::optional<LossScale> loss_scale_;
  BatchUploader uploader_;
};

}  // namespace pando
