#pragma once

// How the basic kernels are told where elements lie. ops/strided.h makes these from shapes.

#include <cstdint>

#include "engine/types.h"

namespace pando {

/// Dimensions that a kernel can be given, after neighbours have been merged where strides allow it.
inline constexpr int kMaxDims = 6;

/// A box of elements, walked in row-major order, and where each of N operands has them: element
/// (c[0], ..., c[rank - 1]) of operand k lies at sum over d of c[d] * stride[k][d]. Strides are in
/// elements; 0 repeats an operand along a dimension. A scalar is a box of rank 1 and size 1.
template <int N>
struct StridedIndex {
  int64_t rank;  ///< 1 ... kMaxDims
  int64_t size[kMaxDims];
  int64_t stride[N][kMaxDims];
};

/// A reduction: every element of the box `kept` is an output (row-major, contiguous), to which the
/// box `reduced` contributes. An operand's offset is the sum of its offsets in both boxes.
template <int N>
struct ReduceIndex {
  StridedIndex<N> kept;
  StridedIndex<N> reduced;
};

/// Elements in the box.
template <int N>
PANDO_HOST_DEVICE inline int64_t Count(const StridedIndex<N>& index) {
  int64_t count = 1;
  for (int64_t d = 0; d < index.rank; ++d) count *= index.size[d];
  return count;
}

}  // namespace pando
