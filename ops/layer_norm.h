#pragma once

#include "engine/tensor.h"

namespace pando {

/// (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension (Ba, Kiros and Hinton,
/// 2016). x [..., C]; weight and bias [C], bias may be undefined. Statistics are kept in f32.
/// Throws InvalidArgument where shapes or dtypes don't fit.
Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);

/// The residual stream after an addition, and its normalisation.
struct ResidualLayerNormResult {
  Tensor sum;
  Tensor normalized;
};

/// sum = x + residual; normalized = LayerNorm(sum): one pass over memory instead of two.
ResidualLayerNormResult ResidualLayerNorm(const Tensor& x, const Tensor& residual,
                                          const Tensor& weight, const Tensor& bias,
                                          double eps = 1e-5);

}  // namespace pando
