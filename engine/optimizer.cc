#include "engine/optimizer.h"

#include <algorithm>
#include <cmath>

#include "engine/error.h"

namespace pando {

AdamW::AdamW(FlatInterval interval, const AdamWOptions& options, Device& device)
    : interval_(interval),
      options_(options),
      exp_avg_(Tensor::Zeros({interval.size()}, DType::kF32, device, "first moments")),
      exp_avg_sq_(Tensor::Zeros({interval.size()}, DType::kF32, device, "second moments")) {}

void AdamW::Step(const FlatLayout& layout, Tensor& masters, const Tensor& grads, Tensor& values,
                 double learning_rate, double grad_scale, uint64_t seed) {
  Require(masters.dtype() == DType::kF32 && masters.numel() == interval_.size() &&
              grads.numel() == interval_.size() && values.numel() == interval_.size(),
          "AdamW: an interval of ", interval_.size(), " elements, masters ", Describe(masters),
          ", gradients ", Describe(grads), ", values ", Describe(values));
  ++steps_;
  Device& device = masters.device();
  const bool copies = values.storage() != masters.storage();
  auto* values_bytes = static_cast<char*>(values.mutable_data());
  auto* p = masters.mutable_data<float>();
  auto* m = exp_avg_.mutable_data<float>();
  auto* v = exp_avg_sq_.mutable_data<float>();
  const auto* g = grads.data<float>();
  for (const FlatLayout::Run& run : layout.Runs(interval_)) {
    const int64_t at = run.interval.begin - interval_.begin;
    device.current_stream().Launch(
        device.vector_kernels().adamw,
        AdamWArgs{
            .p = p + at,
            .m = m + at,
            .v = v + at,
            .grad = g + at,
            .n = run.interval.size(),
            .copy = copies ? values_bytes + at * SizeOf(values.dtype()) : nullptr,
            .copy_dtype = values.dtype(),
            .rounding = values.dtype() == DType::kBF16 ? options_.rounding : Rounding::kNearest,
            .key = {.seed = seed, .site = HashName("adamw"), .step = static_cast<uint32_t>(steps_)},
            .first_element = run.interval.begin,
            .lr = learning_rate,
            .beta1 = options_.beta1,
            .beta2 = options_.beta2,
            .eps = options_.eps,
            .weight_decay = run.decays ? options_.weight_decay : 0.0,
            .bias_correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps_)),
            .bias_correction2 = 1 - std::pow(options_.beta2, static_cast<double>(steps_)),
            .grad_scale = grad_scale,
            .grad_factor = nullptr});
  }
}

Tensor SumOfSquares(const Tensor& t) {
  Device& device = t.device();
  Tensor out = Tensor::Empty({1}, DType::kF64, device, "sum of squares");
  Tensor scratch =
      Tensor::Empty({SumSquaresScratch(t.numel())}, DType::kF64, device, "sum of squares");
  device.current_stream().Launch(device.vector_kernels().sum_squares,
                                 SumSquaresArgs{.x = t.data(),
                                                .dtype = t.dtype(),
                                                .n = t.numel(),
                                                .scratch = scratch.mutable_data<double>(),
                                                .out = out.mutable_data<double>(),
                                                .accumulate = false});
  return out;
}

double ClipFactor(double norm, double max_norm) {
  return max_norm == 0 ? 1.0 : std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace pando
