#pragma once

// What losses share.

#include "engine/tape.h"
#include "engine/tensor.h"
#include "ops/cross_entropy.h"

namespace pando {

/// Queues the losses of logits [rows, stride], of which `vocab` columns count: losses [rows], and
/// logsumexp [rows] for backward unless null.
void LossesOf(const Tensor& logits, const Tensor& targets, int64_t vocab,
              const CrossEntropyOptions& options, Tensor& losses, Tensor* logsumexp);

/// The same, and the gradient of options.scale x their sum in place of the logits.
void LossesAndGradient(Tensor& logits, const Tensor& targets, int64_t vocab,
                       const CrossEntropyOptions& options, Tensor& losses);

/// options.scale x sum of the rows' losses, f64 [1].
Tensor SumLosses(const Tensor& losses, const Tensor& targets, int64_t vocab,
                 const CrossEntropyOptions& options);

/// The gradient of the loss as the f32 factor that kernels read from the device.
Tensor AsFactor(const Tensor& gradient);

/// Multiplies `gradient`, computed as if the loss were what is differentiated, with the gradient of
/// the loss, unless that is 1 as it mostly is.
void TimesLossGradient(BackwardPass& pass, Tensor& gradient);

}  // namespace pando
