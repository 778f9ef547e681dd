#include "train/train_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/error.h"
#include "engine/tape.h"

namespace pando {
namespace {

std::optional<LossScale> LossScaleFor(const TrainStepOptions& options, DType dtype) {
  if (options.loss_scale) return LossScale(*options.loss_scale);
  return dtype == DType::kF16 ? std::optional<LossScale>(LossScale()) : std::nullopt;
}

}  // namespace

TrainStep::TrainStep(LanguageModel& model, FlatParameters& parameters,
                     const TrainStepOptions& options, int64_t max_samples, int64_t length)
    : model_(model),
      parameters_(parameters),
      options_(options),
      optimizer_({0, parameters.layout().size()}, options.adamw, parameters.device()),
      loss_scale_(LossScaleFor(options, parameters.dtype())),
      uploader_(parameters.device(), max_samples, length) {}

StepResult TrainStep::Run(const HostBatch& batch, const std::vector<int64_t>& micro_batches,
                          int64_t step, double learning_rate) {
  Require(std::accumulate(micro_batches.begin(), micro_batches.end(), int64_t{0}) == batch.samples,
          "micro-batches don't add up to the global batch of ", batch.samples, " samples");
  StepResult result;
  result.targets = std::count_if(batch.targets.begin(), batch.targets.end(),
                                 [](int32_t target) { return target >= 0; });
  if (result.targets == 0) {
    result.skipped = true;
    return result;
  }
  result.loss = ForwardBackward(batch, micro_batches, step, result.targets);
  parameters_.CompleteGrads();
  const double scale = Scale();
  if (loss_scale_) result.loss_scale = scale;
  result.grad_norm = std::sqrt(SumOfSquares(parameters_.grads()).Item()) / scale;
  parameters_.device().CheckErrorFlag();
  // A loss that is no number stays so under any scale.
  if (std::isfinite(result.loss) && !std::isfinite(result.grad_norm) && loss_scale_ &&
      loss_scale_->OnOverflow()) {
    result.skipped = true;
    return result;
  }
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    ThrowNonFinite(batch, micro_batches, step, result.targets, result.loss, result.grad_norm);
  }
  optimizer_.Step(parameters_.layout(), parameters_.masters(), parameters_.grads(),
                  parameters_.values(), learning_rate,
                  ClipFactor(result.grad_norm, options_.grad_clip) / scale, options_.seed);
  parameters_.MarkChanged();
  if (loss_scale_) loss_scale_->OnGoodStep();
  return result;
}

double TrainStep::ForwardBackward(const HostBatch& batch, const std::vector<int64_t>& micro_batches,
                                  int64_t step, int64_t targets) {
  parameters_.ClearGrads();
  std::vector<Tensor> losses;
  try {
    MicroBatches(batch, micro_batches, step, targets, losses);
  } catch (...) {
    // So that another step, with smaller micro-batches say, finds nothing of this one.
    Tape::Current().Clear();
    uploader_.Abandon();
    throw;
  }
  // Read only now, so that the device never waits for the host within a step.
  double loss = 0;
  for (const Tensor& l : losses) loss += l.Item();
  return loss / Scale();
}

void TrainStep::MicroBatches(const HostBatch& batch, const std::vector<int64_t>& micro_batches,
                             int64_t step, int64_t targets, std::vector<Tensor>& losses) {
  int64_t first = 0;
  const double scale = Scale() / static_cast<double>(targets);
  uploader_.Start(batch, first, micro_batches[0]);
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const DeviceBatch micro = uploader_.Take();
    first += micro_batches[i];
    if (i + 1 < micro_batches.size()) uploader_.Start(batch, first, micro_batches[i + 1]);
    const StepContext context{
        .seed = options_.seed, .step = step, .sample_ids = micro.sample_ids, .training = true};
    {
      const TraceSpan span("forward");
      losses.push_back(model_.Loss(micro.tokens, micro.targets, context, scale));
    }
    {
      const TraceSpan span("backward");
      Backward(losses.back());
    }
    uploader_.Done();
  }
}

void TrainStep::ThrowNonFinite(const HostBatch& batch, const std::vector<int64_t>& micro_batches,
                               int64_t step, int64_t targets, double loss, double norm) {
  const std::string what = absl::StrCat("step ", step, ": loss ", loss, ", gradient norm ", norm);
  for (const FlatLayout::Entry& e : parameters_.layout().entries()) {
    const std::vector<float> values = parameters_.ReadParameter(*e.parameter);
    if (std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
      continue;
    }
    throw NonFinite(
        absl::StrCat(what, "; the first bad tensor is parameter ", e.parameter->name()));
  }
  // Nothing was changed yet, so the same numbers come again, and are looked at one by one.
  try {
    const CheckFiniteGuard checking;
    ForwardBackward(batch, micro_batches, step, targets);
  } catch (const NonFinite& e) {
    throw NonFinite(absl::StrCat(what, "; the first bad tensor is ", e.what(),
                                 "; try a lower learning rate or a longer warm-up"));
  }
  throw NonFinite(absl::StrCat(what, ": an overflow of the sum"));
}

std::vector<int64_t> CutBatch(int64_t global_batch, int64_t micro_batch) {
  std::vector<int64_t> sizes;
  for (int64_t left = global_batch; left > 0; left -= micro_batch) {
    sizes.push_back(std::min(left, micro_batch));
  }
  return sizes;
}

}  // namespace pando
