#include "models/layers.h"

#include "ops/linear.h"

namespace pando {
namespace {
const Tensor kNone;
}  // namespace

LinearLayer::LinearLayer(const Scope& scope, int64_t in, int64_t out, double std, bool with_bias)
    : Module(scope),
      weight_(scope, "weight", {in, out}, Initializer::Normal(0, std), WeightDecay::kYes) {
  if (with_bias) bias_.emplace(scope, "bias", Shape{out}, Initializer::Zeros(), WeightDecay::kNo);
}

Tensor LinearLayer::operator()(const Tensor& x) const { return Linear(x, weight_, BiasOrNone()); }

Tensor LinearLayer::WithGelu(const Tensor& x) const { return LinearGelu(x, weight_, BiasOrNone()); }

Tensor LinearLayer::AfterGelu(const LinearLayer& inner, const Tensor& x) const {
  return FeedForward(x, inner.weight_, inner.BiasOrNone(), weight_, BiasOrNone());
}

const Tensor& LinearLayer::BiasOrNone() const { return bias_ ? bias_->value() : kNone; }

LayerNormLayer::LayerNormLayer(const Scope& scope, int64_t width, double eps, bool with_bias)
    : Module(scope),
      eps_(eps),
      weight_(scope, "weight", {width}, Initializer::Ones(), WeightDecay::kNo) {
  if (with_bias) {
    bias_.emplace(scope, "bias", Shape{width}, Initializer::Zeros(), WeightDecay::kNo);
  }
}

Tensor LayerNormLayer::operator()(const Tensor& x) const {
  return LayerNorm(x, weight_, bias_ ? bias_->value() : kNone, eps_);
}

ResidualLayerNormResult LayerNormLayer::AfterResidual(const Tensor& x,
                                                      const Tensor& residual) const {
  return ResidualLayerNorm(x, residual, weight_, bias_ ? bias_->value() : kNone, eps_);
}

}  // namespace pando
