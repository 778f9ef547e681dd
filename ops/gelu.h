#pragma once

#include "engine/tensor.h"

namespace pando {

/// x Phi(x) in the tanh form of GPT-2 (Hendrycks and Gimpel, 2016):
/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
Tensor Gelu(const Tensor& x);

/// Gelu(x + bias), bias [C] added to every row of x [..., C], in one pass. With `reuse_x` the sum
/// takes x's place in memory: x must be used nowhere else.
Tensor BiasGelu(const Tensor& x, const Tensor& bias, bool reuse_x = false);

}  // namespace pando
