#pragma once

// Sums over the rows of a matrix, as the gradients of biases and of LayerNorm's weights are: each
// chunk of rows has a partial sum of its own, and these are added in order. The chunks depend on
// the number of rows alone, so the result doesn't depend on the number of threads.

#include "engine/cpu/parallel.h"
#include "engine/types.h"

namespace pando::PANDO_ISA {

/// Rows per partial sum: at most 32 partial sums, so that they stay small beside the matrix.
inline int64_t PartialRows(int64_t rows) {
  const int64_t even = (rows + 31) / 32;
  return even < 16 ? 16 : even;
}

/// Number of partial sums.
inline int64_t PartialCount(int64_t rows) {
  return (rows + PartialRows(rows) - 1) / PartialRows(rows);
}

/// out[c] (+)= sum over the partials of partials[k * stride + c], for c in [0, cols).
template <typename C>
void AddPartials(const C* partials, int64_t count, int64_t stride, int64_t cols, bool accumulate,
                 C* out) {
  ParallelFor(cols, 1024, [=](int64_t begin, int64_t end) {
    if (!accumulate) {
      for (int64_t c = begin; c < end; ++c) out[c] = C(0);
    }
    for (int64_t k = 0; k < count; ++k) {
      const C* partial = partials + k * stride;
#pragma omp simd
      for (int64_t c = begin; c < end; ++c) out[c] += partial[c];
    }
  });
}

}  // namespace pando::PANDO_ISA
