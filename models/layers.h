#pragma once

// Layers that models share: parameters with names and initial values, and the op that they feed.

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/module.h"
#include "engine/tensor.h"
#include "ops/layer_norm.h"

namespace pando {

/// y = x W + b with W [in, out], as GPT-2 stores it.
class LinearLayer : public Module {
 public:
  /// W starts normal with standard deviation `std`, b at zero.
  LinearLayer(const Scope& scope, int64_t in, int64_t out, double std, bool with_bias);

  /// x [..., in] -> [..., out].
  Tensor operator()(const Tensor& x) const;
  /// gelu(x W + b), tanh form.
  Tensor WithGelu(const Tensor& x) const;
  /// gelu(inner(x)) W + b: a feed-forward network, of which this is the second layer.
  Tensor AfterGelu(const LinearLayer& inner, const Tensor& x) const;

 private:
  const Tensor& BiasOrNone() const;

  Parameter weight_;
  std::optional<Parameter> bias_;
};

/// Layer normalisation over the last dimension, weight 1 and bias 0 at the start.
class LayerNormLayer : public Module {
 public:
  LayerNormLayer(const Scope& scope, int64_t width, double eps, bool with_bias);

  /// x [..., width].
  Tensor operator()(const Tensor& x) const;
  /// `residual` + x, and its normalisation.
  ResidualLayerNormResult AfterResidual(const Tensor& x, const Tensor& residual) const;

 private:
  double eps_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

}  // namespace pando
