#pragma once

// From shapes to the index boxes of ops/kernels/strided.h. Boxes come out collapsed: dimensions of
// size 1 are dropped and neighbours merged wherever the strides of all operands allow it, so that
// kernels run over contiguous memory in one flat loop.

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "ops/kernels/strided.h"

namespace pando {

/// Sizes of a dense row-major tensor, outermost first.
using Dims = absl::Span<const int64_t>;

namespace internal {

/// A StridedIndex whose number of operands is known at run time only; its fields by reference.
struct IndexRef {
  int operands;
  int64_t* rank;
  int64_t* size;                // [kMaxDims]
  int64_t (*stride)[kMaxDims];  // [operands][kMaxDims]
};

template <int N>
IndexRef Ref(StridedIndex<N>& index) {
  return {N, &index.rank, index.size, index.stride};
}

void Collapse(IndexRef index);
void FillBroadcast(Dims out, absl::Span<const Dims> operands, IndexRef index);
void Split(IndexRef all, const bool* reduced, IndexRef kept, IndexRef rest);

}  // namespace internal

/// The same elements in the same order, in as few dimensions as possible. An empty box becomes
/// rank 1, size 0.
template <int N>
StridedIndex<N> Collapsed(StridedIndex<N> index) {
  internal::Collapse(internal::Ref(index));
  return index;
}

/// The shape to which NumPy's rules broadcast `a` and `b` together, into out[0 .. return value).
/// Throws InvalidArgument if they don't match or have more than kMaxDims dimensions.
int64_t BroadcastDims(Dims a, Dims b, int64_t (&out)[kMaxDims]);

/// Every dimension of `out`, not collapsed, with the strides of dense row-major operands broadcast
/// to it: stride 0 where an operand has size 1 or lacks the dimension. Throws InvalidArgument if an
/// operand does not broadcast to `out` or `out` has more than kMaxDims dimensions.
template <int N>
StridedIndex<N> BroadcastIndex(Dims out, const std::array<Dims, N>& operands) {
  StridedIndex<N> index{};
  internal::FillBroadcast(out, operands, internal::Ref(index));
  return index;
}

/// Parts the dimensions of `index` into those with reduced[d] and the others; both collapsed.
template <int N>
ReduceIndex<N> SplitIndex(StridedIndex<N> index, const bool (&reduced)[kMaxDims]) {
  ReduceIndex<N> split{};
  internal::Split(internal::Ref(index), reduced, internal::Ref(split.kept),
                  internal::Ref(split.reduced));
  return split;
}

/// The reduction that undoes a broadcast of `target` to `out` (the backward of broadcasting): over
/// the dimensions in which `target` has size 1 or which it lacks. Its outputs have the shape of
/// `target`, its operands those given, themselves broadcast to `out`. Throws as BroadcastIndex.
template <int N>
ReduceIndex<N> ReduceBroadcast(Dims out, Dims target, const std::array<Dims, N>& operands) {
  const StridedIndex<1> to = BroadcastIndex<1>(out, {target});
  bool reduced[kMaxDims] = {};
  for (int64_t d = 0; d < to.rank; ++d) reduced[d] = to.stride[0][d] == 0;
  return SplitIndex<N>(BroadcastIndex<N>(out, operands), reduced);
}

/// The reduction of a dense row-major x over `dims` (each in [0, rank), none twice; throws
/// InvalidArgument otherwise).
ReduceIndex<1> ReduceOver(Dims x, absl::Span<const int64_t> dims);

/// For a dense y[i0, i1, ...] = x permuted so that dimension d of y is dimension permutation[d] of
/// the dense x: operand 0 is y, operand 1 is x. Throws InvalidArgument unless it is a permutation.
StridedIndex<2> PermuteIndex(Dims x, absl::Span<const int64_t> permutation);

/// Part of a dense tensor along one dimension, as operand 1; the same elements dense, as operand 0.
struct SliceIndex {
  StridedIndex<2> index;
  int64_t offset;  ///< elements from the start of the whole tensor to the slice
};

/// Elements [start, start + length) of dimension `dim` of a dense tensor of shape `whole`. A slice
/// copies from operand 1 to 0; concatenation and the backward of a slice from 0 to 1 (Swapped).
/// Throws InvalidArgument if the range does not lie inside.
SliceIndex MakeSliceIndex(Dims whole, int64_t dim, int64_t start, int64_t length);

/// The two operands exchanged.
StridedIndex<2> Swapped(const StridedIndex<2>& index);

}  // namespace pando
