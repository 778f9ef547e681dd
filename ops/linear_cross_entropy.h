#pragma once

#include <cstdint>

#include "engine/tensor.h"
#include "ops/cross_entropy.h"

namespace pando {

struct LinearCrossEntropyOptions {
  CrossEntropyOptions loss = {};
  /// Rows whose logits are held at once. 0: LossChunkRows.
  int64_t chunk_rows = 0;
};

/// CrossEntropy(x W^T, targets): the head of a language model and its loss, f64 [1]. x [..., C],
/// weight [V, C], targets i32 [...]. Where the rows make more than one chunk, the logits of one
/// chunk are all that is ever held: gradients are computed with them in forward, from then on to
/// lie as an f32 [V, C] and a tensor like x. One chunk is CrossEntropyInPlace(Linear(...)).
Tensor LinearCrossEntropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                          const LinearCrossEntropyOptions& options = {});

/// The rows of a chunk, for `rows` rows of `columns` logits of `element_bytes`: all of them as long
/// as their logits fit 512 MiB, else as few chunks as make them fit, all of about the same size.
int64_t LossChunkRows(int64_t rows, int64_t columns, int64_t element_bytes);

}  // namespace pando
