#include "ops/loss_parts.h"

#include "ops/op_support.h"

namespace pando {

void LossesOf(const Tensor& logits, const Tensor& targets, int64_t vocab,
              const CrossEntropyOptions& options, Tensor& losses, Tensor* logsumexp) {
  Device& device = logits.device();
  Run(device, cross_entropy_kernels.For(device).forward,
      CrossEntropyForwardArgs{
          .logits = logits.data(),
          .targets = targets.data<int32_t>(),
          .losses = losses.mutable_data(),
          .logsumexp = logsumexp == nullptr ? nullptr : logsumexp->mutable_data(),
          .error = device.error_flag(),
          .dtype = logits.dtype(),
          .rows = targets.numel(),
          .vocab = vocab,
          .stride = logits.dim(-1),
          .ignore_index = options.ignore_index});
}

void LossesAndGradient(Tensor& logits, const Tensor& targets, int64_t vocab,
                       const CrossEntropyOptions& options, Tensor& losses) {
  Device& device = logits.device();
  Run(device, cross_entropy_kernels.For(device).fused,
      CrossEntropyFusedArgs{.logits = logits.mutable_data(),
                            .targets = targets.data<int32_t>(),
                            .losses = losses.mutable_data(),
                            .error = device.error_flag(),
                            .dtype = logits.dtype(),
                            .rows = targets.numel(),
                            .vocab = vocab,
                            .stride = logits.dim(-1),
                            .ignore_index = options.ignore_index,
                            .scale = options.scale,
                            .factor = nullptr});
}

Tensor SumLosses(const Tensor& losses, const Tensor& targets, int64_t vocab,
                 const CrossEntropyOptions& options) {
  Device& device = losses.device();
  Tensor sum = Tensor::Empty({1}, DType::kF64, device, "loss");
  Tensor count = Tensor::Empty({1}, DType::kI64, device, "target count");
  Run(device, cross_entropy_kernels.For(device).loss_sum,
      LossSumArgs{.losses = losses.data(),
                  .targets = targets.data<int32_t>(),
                  .sum = sum.mutable_data<double>(),
                  .count = count.mutable_data<int64_t>(),
                  .accumulate = false,
                  .dtype = losses.dtype(),
                  .rows = losses.numel(),
                  .vocab = vocab,
                  .ignore_index = options.ignore_index});
  Run(device, device.vector_kernels().scale,
      ScaleArgs{.x = sum.mutable_data(),
                .dtype = DType::kF64,
                .n = 1,
                .a = options.scale,
                .factor = nullptr});
  return sum;
}

Tensor AsFactor(const Tensor& gradient) {
  Tensor factor = Tensor::Empty({1}, DType::kF32, gradient.device(), "factor");
  factor.CastFrom(gradient);
  return factor;
}

void TimesLossGradient(BackwardPass& pass, Tensor& gradient) {
  if (pass.GradientIsOne()) return;
  const Tensor factor = AsFactor(pass.Gradient());
  Run(gradient.device(), gradient.device().vector_kernels().scale,
      ScaleArgs{.x = gradient.mutable_data(),
                .dtype = gradient.dtype(),
                .n = gradient.numel(),
                .a = 1.0,
                .factor = factor.data<float>()});
}

}  // namespace pando
