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

}  // namespace pando
