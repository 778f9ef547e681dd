#pragma once

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"

namespace pando {

/// out[n] = table[tokens[n]], plus positions[n % length + offset] unless `positions` is null: the
/// sum of GPT-2's two embeddings of [batch, length] tokens. A token outside [0, vocab) sets bit 0
/// of *error and counts as a row of zeros.
struct EmbeddingForwardArgs {
  const int32_t* tokens;  ///< [count]
  const void* table;      ///< [vocab, cols]
  const void* positions;  ///< [>= offset + length, cols], or null
  void* out;              ///< [count, cols]
  int32_t* error;
  DType dtype;  ///< floating
  int64_t count;
  int64_t vocab;
  int64_t cols;
  int64_t length;  ///< tokens of a sequence; ignored without positions
  int64_t offset;  ///< position of a sequence's first token
};

/// dtable[tokens[n]] += dout[n] and dpositions[n % length + offset] += dout[n], in the order of n,
/// so that the sums are reproducible. Both accumulate, in f32 (f64 if dtype is f64). Tokens outside
/// [0, vocab) are left out: forward has reported them.
struct EmbeddingBackwardArgs {
  const int32_t* tokens;  ///< [count]
  const void* dout;       ///< [count, cols]
  void* dtable;           ///< [vocab, cols], or null
  void* dpositions;       ///< [>= offset + length, cols], or null
  DType dtype;
  int64_t count;
  int64_t vocab;
  int64_t cols;
  int64_t length;
  int64_t offset;
  void* scratch;  ///< backward_scratch(count, vocab) bytes
};

struct EmbeddingKernels {
  Kernel<EmbeddingForwardArgs> forward;
  Kernel<EmbeddingBackwardArgs> backward;
  /// Bytes that backward needs as scratch.
  int64_t (*backward_scratch)(int64_t count, int64_t vocab);
};

}  // namespace pando
