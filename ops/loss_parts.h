#pragma once

// What losses share.

#include "engine/tape.h"
#include "engine/tensor.h"
#include "ops/cross_entropy.h"

namespace pando {

/// options.scale x sum of the rows' losses, f64 [1].
Tensor SumLosses(const Tensor& losses, const Tensor& targets, int64_t vocab,
                 const CrossEntropyOptions& options);

/// The gradient of the loss as the f32 factor that kernels read from the device.
Tensor AsFactor(const Tensor& gradient);

/// Multiplies `gradient`, computed as if the loss were what is differentiated, with the gradient of
/// the loss, unless that is 1 as it mostly is.
void TimesLossGradient(BackwardPass& pass, Tensor& gradient);

}  // namespace pando
