#pragma once

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"

namespace pando {

// The classifier's loss. Logits are [rows, stride] of which the first `vocab` columns count; the
// rest only round the vocabulary up to a size that matrix products like: they never add to a loss,
// and their gradient is 0. A row whose target is `ignore_index` has loss and gradient 0. Any other
// target outside [0, vocab) sets bit 0 of *error, and the row is treated as ignored.

/// loss[r] = logsumexp(logits[r]) - logits[r, target[r]].
struct CrossEntropyForwardArgs {
  const void* logits;      ///< [rows, stride]
  const int32_t* targets;  ///< [rows]
  void* losses;            ///< [rows], f32 (f64 if dtype is f64)
  void* logsumexp;         ///< [rows], of the losses' dtype: for backward; or null
  int32_t* error;
  DType dtype;  ///< floating
  int64_t rows;
  int64_t vocab;
  int64_t stride;
  int32_t ignore_index;
};

/// dlogits[r, c] = (softmax(logits[r])[c] - (c == target[r])) * scale * *factor, factor 1 if null.
struct CrossEntropyBackwardArgs {
  const void* logits;      ///< [rows, stride]
  const int32_t* targets;  ///< [rows]
  const void* logsumexp;   ///< [rows], from forward
  void* dlogits;           ///< [rows, stride]; may be logits
  DType dtype;
  int64_t rows;
  int64_t vocab;
  int64_t stride;
  int32_t ignore_index;
  double scale;
  const float* factor;  ///< in device memory
};

/// Forward, and the gradient written over the logits while the row is still in the cache.
struct CrossEntropyFusedArgs {
  void* logits;            ///< [rows, stride], overwritten with the gradient
  const int32_t* targets;  ///< [rows]
  void* losses;            ///< [rows], f32 (f64 if dtype is f64)
  int32_t* error;
  DType dtype;
  int64_t rows;
  int64_t vocab;
  int64_t stride;
  int32_t ignore_index;
  double scale;
  const float* factor;  ///< in device memory
};

/// *sum = sum of losses (f64), *count = number of targets that count, in one fixed order.
struct LossSumArgs {
  const void* losses;      ///< [rows], f32 or f64 by `dtype`
  const int32_t* targets;  ///< [rows]
  double* sum;
  int64_t* count;
  bool accumulate;  ///< add to *sum and *count instead of writing them
  DType dtype;
  int64_t rows;
  int64_t vocab;
  int32_t ignore_index;
};

struct CrossEntropyKernels {
  Kernel<CrossEntropyForwardArgs> forward;
  Kernel<CrossEntropyBackwardArgs> backward;
  Kernel<CrossEntropyFusedArgs> fused;
  Kernel<LossSumArgs> loss_sum;
};

}  // namespace pando
