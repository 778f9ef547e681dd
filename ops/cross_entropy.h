#pragma once

#include <cstdint>

#include "engine/tensor.h"

namespace pando {

struct CrossEntropyOptions {
  /// Columns of the logits that count; the rest is padding with probability 0. 0: all.
  int64_t vocab = 0;
  /// Targets of this value don't count.
  int32_t ignore_index = -1;
  /// Factor of the loss and its gradient: 1 / (targets of the whole global batch) in training.
  double scale = 1.0;
};

/// scale x sum over rows of -log softmax(logits)[target]: f64 [1]. logits [..., V], targets i32
/// [...]. A target outside [0, vocab) that is not ignore_index counts as ignored and sets the
/// device's error flag (Device::CheckErrorFlag).
Tensor CrossEntropy(const Tensor& logits, const Tensor& targets,
                    const CrossEntropyOptions& options = {});

/// The same, but where a gradient is wanted the logits are OVERWRITTEN with it at once, which saves
/// the largest tensor of a training step: they must not be used afterwards.
Tensor CrossEntropyInPlace(Tensor logits, const Tensor& targets,
                           const CrossEntropyOptions& options = {});

}  // namespace pando
