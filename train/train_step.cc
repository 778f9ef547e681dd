#include "train/train_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "dist/launch/progress_page.h"
#include "engine/error.h"
#include "engine/tape.h"

namespace pando {
namespace {

std::optional<LossScale> LossScaleFor(const TrainStepOptions& options, DType dtype) {
  if (options.loss_scale) return LossScale(*options.loss_scale);
  return dtype == DType::kF16 ? std::optional<LossScale>(LossScale()) : std::nullopt;
}

}  // namespace

TrainStep::TrainStep(LanguageModel& model, Zero& parameters, const TrainStepOptions& options,
                     int64_t max_samples, int64_t length)
    : model_(model),
      parameters_(parameters),
      options_(options),
      loss_scale_(LossScaleFor(options, parameters.dtype())),
      uploader_(parameters.device(), max_samples, length) {}

StepResult TrainStep::Run(const HostBatch& batch, const std::vector<int64_t>& micro_batches,
                          int64_t step, double learning_rate) {
  Require(std::accumulate(micro_batches.begin(), micro_batches.end(), int64_t{0}) == batch.samples,
          "micro-batches don't add up to the global batch of ", batch.samples, " samples");
  Require(!micro_batches.empty(), "a step needs a micro-batch, if only one of no samples");
  StepResult result;
  auto targets = static_cast<double>(std::count_if(batch.targets.begin(), batch.targets.end(),
                                                   [](int32_t target) { return target >= 0; }));
  parameters_.AllReduce({&targets, 1});
  result.targets = static_cast<int64_t>(targets);
  if (result.targets == 0) {
    result.skipped = true;
    return result;
  }
  result.loss = ForwardBackward(batch, micro_batches, step, result.targets);
  parameters_.FinishGradients();
  const double scale = Scale();
  if (loss_scale_) result.loss_scale = scale;
  result.grad_norm = std::sqrt(parameters_.SumOfSquares()) / scale;
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
  parameters_.OptimizerStep(learning_rate, ClipFactor(result.grad_norm, options_.grad_clip) / scale,
                            options_.seed);
  if (loss_scale_) loss_scale_->OnGoodStep();
  return result;
}

/// The loss of the global batch.
double TrainStep::ForwardBackward(const HostBatch& batch, const std::vector<int64_t>& micro_batches,
                                  int64_t step, int64_t targets) {
  parameters_.BeginStep();
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
  parameters_.AllReduce({&loss, 1});
  return loss / Scale();
}

void TrainStep::MicroBatches(const HostBatch& batch, const std::vector<int64_t>& micro_batches,
                             int64_t step, int64_t targets, std::vector<Tensor>& losses) {
  const double scale = Scale() / static_cast<double>(targets);
  // Where the next micro-batch with samples starts, and that it is on its way.
  int64_t first = 0;
  const auto start = [&](size_t i) {
    while (i < micro_batches.size() && micro_batches[i] == 0) ++i;
    if (i == micro_batches.size()) return;
    uploader_.Start(batch, first, micro_batches[i]);
    first += micro_batches[i];
  };
  start(0);
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const bool last = i + 1 == micro_batches.size();
    if (micro_batches[i] == 0) {
      parameters_.EmptyMicroStep(last);
      continue;
    }
    const DeviceBatch micro = uploader_.Take();
    start(i + 1);
    parameters_.MicroStep([&] { losses.push_back(ForwardBackward(micro, step, scale)); }, last);
    uploader_.Done();
  }
}

Tensor TrainStep::ForwardBackward(const DeviceBatch& micro, int64_t step, double scale) {
  const StepContext context{
      .seed = options_.seed, .step = step, .sample_ids = micro.sample_ids, .training = true};
  Tensor loss;
  {
    const TraceSpan span("forward");
    loss = model_.Loss(micro.tokens, micro.targets, context, scale);
  }
  const TraceSpan span("backward");
  const PhaseWithin phase(Phase::kBackward);
  Backward(loss);
  return loss;
}

/// Of those this rank holds something of; "" if all are finite.
std::string TrainStep::FirstBadParameter() {
  const std::vector<float> own = parameters_.masters().ToHost<float>();
  for (const FlatLayout::Entry& e : parameters_.layout().entries()) {
    const FlatInterval part = Intersection(parameters_.own(), {e.offset, e.end()});
    const auto begin = own.begin() + (part.begin - parameters_.own().begin);
    if (!std::all_of(begin, begin + part.size(), [](float v) { return std::isfinite(v); })) {
      return e.parameter->name();
    }
  }
  return "";
}

void TrainStep::ThrowNonFinite(const HostBatch& batch, const std::vector<int64_t>& micro_batches,
                               int64_t step, int64_t targets, double loss, double norm) {
  const std::string what = absl::StrCat("step ", step, ": loss ", loss, ", gradient norm ", norm);
  const std::string parameter = FirstBadParameter();
  // The others of whose parameters none is bad must not start a step that this rank doesn't.
  double bad = parameter.empty() ? 0 : 1;
  parameters_.AllReduce({&bad, 1}, ReduceOp::kMax);
  if (bad != 0) {
    throw NonFinite(
        absl::StrCat(what, "; the first bad tensor is ",
                     parameter.empty() ? "a parameter of another rank" : "parameter " + parameter));
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

}  // namespace pando
