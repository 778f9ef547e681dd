#pragma once

// Tokens in ascending order on the device, those that are equal in the order they came: the
// embedding's gradient then sums each token's rows one after the other, without atomics.

#include <cstdint>

namespace pando {

/// Where SortTokens leaves its results, both in scratch.
struct SortedTokens {
  const int32_t*
      keys;  ///< [count], ascending: tokens, or vocab in place of those outside [0, vocab)
  const int64_t* order;  ///< [count]: keys[k] is of token number order[k]
};

/// Bytes of scratch that SortTokens needs.
int64_t TokenSortBytes(int64_t count);

/// Queues a stable radix sort of tokens[0 .. count), by digits of 8 bits, as many as `vocab` has.
SortedTokens SortTokens(const int32_t* tokens, int64_t count, int64_t vocab, void* scratch,
                        void* stream);

}  // namespace pando
