#pragma once

#include "engine/tensor.h"

namespace pando {

/// How a weight lies in memory.
enum class WeightLayout {
  kInOut,  ///< [in, out]: y = x W (GPT-2)
  kOutIn,  ///< [out, in]: y = x W^T (most others; a tied embedding)
};

/// x W + bias: x [..., in] -> [..., out]; bias [out] may be undefined. The weight's gradient is
/// accumulated in f32. Throws InvalidArgument where sizes or dtypes don't fit.
Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              WeightLayout layout = WeightLayout::kInOut);

/// Gelu(x W + bias), in the tanh form (see Gelu), in one pass where the device's products can.
Tensor LinearGelu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  WeightLayout layout = WeightLayout::kInOut);

/// Linear(LinearGelu(x, weight_in, bias_in), weight_out, bias_out), the feed-forward network of a
/// transformer block. As one operation, so that backward too has GELU in the product beside it.
Tensor FeedForward(const Tensor& x, const Tensor& weight_in, const Tensor& bias_in,
                   const Tensor& weight_out, const Tensor& bias_out,
                   WeightLayout layout = WeightLayout::kInOut);

}  // namespace pando
