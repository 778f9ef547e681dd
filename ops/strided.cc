#include "ops/strided.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "engine/error.h"

namespace pando {
namespace {

std::string Text(Dims dims) { return "[" + absl::StrJoin(dims, ", ") + "]"; }

void RequireRank(Dims dims) {
  Require(dims.size() <= static_cast<size_t>(kMaxDims), "shape ", Text(dims), " has more than ",
          kMaxDims, " dimensions");
}

// Strides of a dense row-major tensor.
void FillDenseStrides(Dims dims, int64_t* stride) {
  int64_t step = 1;
  for (int64_t d = static_cast<int64_t>(dims.size()) - 1; d >= 0; --d) {
    stride[d] = step;
    step *= dims[d];
  }
}

}  // namespace

namespace internal {

void Collapse(IndexRef index) {
  int64_t rank = 0;
  bool empty = false;
  for (int64_t d = 0; d < *index.rank; ++d) {
    const int64_t size = index.size[d];
    empty = empty || size == 0;
    if (size == 1) continue;
    bool merge = rank > 0;
    for (int k = 0; k < index.operands && merge; ++k) {
      merge = index.stride[k][rank - 1] == size * index.stride[k][d];
    }
    const int64_t to = merge ? rank - 1 : rank++;
    index.size[to] = merge ? index.size[to] * size : size;
    for (int k = 0; k < index.operands; ++k) index.stride[k][to] = index.stride[k][d];
  }
  if (rank == 0 || empty) {
    rank = 1;
    index.size[0] = empty ? 0 : 1;
    for (int k = 0; k < index.operands; ++k) index.stride[k][0] = 0;
  }
  *index.rank = rank;
}

void FillBroadcast(Dims out, absl::Span<const Dims> operands, IndexRef index) {
  RequireRank(out);
  const auto rank = static_cast<int64_t>(out.size());
  *index.rank = std::max<int64_t>(rank, 1);
  index.size[0] = 1;
  std::copy(out.begin(), out.end(), index.size);
  for (int k = 0; k < index.operands; ++k) {
    const Dims dims = operands[k];
    const int64_t missing = rank - static_cast<int64_t>(dims.size());
    bool fits = missing >= 0;
    int64_t step = 1;
    for (int64_t d = rank - 1; d >= missing && fits; --d) {
      const int64_t size = dims[d - missing];
      fits = size == out[d] || size == 1;
      index.stride[k][d] = size == 1 ? 0 : step;
      step *= size;
    }
    Require(fits, "shape ", Text(dims), " does not broadcast to ", Text(out));
  }
}

void Split(IndexRef all, const bool* reduced, IndexRef kept, IndexRef rest) {
  for (int64_t d = 0; d < *all.rank; ++d) {
    const IndexRef& to = reduced[d] ? rest : kept;
    to.size[*to.rank] = all.size[d];
    for (int k = 0; k < all.operands; ++k) to.stride[k][*to.rank] = all.stride[k][d];
    ++*to.rank;
  }
  Collapse(kept);
  Collapse(rest);
}

}  // namespace internal

int64_t BroadcastDims(Dims a, Dims b, int64_t (&out)[kMaxDims]) {
  RequireRank(a);
  RequireRank(b);
  const auto rank = static_cast<int64_t>(std::max(a.size(), b.size()));
  const auto size = [rank](Dims dims, int64_t d) {
    const int64_t at = d - rank + static_cast<int64_t>(dims.size());
    return at < 0 ? 1 : dims[at];
  };
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t m = size(a, d);
    const int64_t n = size(b, d);
    Require(m == n || m == 1 || n == 1, "shapes ", Text(a), " and ", Text(b),
            " do not broadcast together");
    out[d] = m == 1 ? n : m;
  }
  return rank;
}

ReduceIndex<1> ReduceOver(Dims x, absl::Span<const int64_t> dims) {
  StridedIndex<1> all{};
  RequireRank(x);
  all.rank = static_cast<int64_t>(x.size());
  std::copy(x.begin(), x.end(), all.size);
  FillDenseStrides(x, all.stride[0]);
  bool reduced[kMaxDims] = {};
  for (const int64_t d : dims) {
    Require(d >= 0 && d < all.rank && !reduced[d], "cannot reduce ", Text(x), " over dimensions ",
            Text(dims));
    reduced[d] = true;
  }
  return SplitIndex<1>(all, reduced);
}

StridedIndex<2> PermuteIndex(Dims x, absl::Span<const int64_t> permutation) {
  RequireRank(x);
  StridedIndex<2> index{};
  index.rank = static_cast<int64_t>(x.size());
  int64_t x_stride[kMaxDims];
  FillDenseStrides(x, x_stride);
  bool seen[kMaxDims] = {};
  bool valid = permutation.size() == x.size();
  for (int64_t d = 0; d < index.rank && valid; ++d) {
    const int64_t from = permutation[d];
    valid = from >= 0 && from < index.rank && !seen[from];
    if (!valid) break;
    seen[from] = true;
    index.size[d] = x[from];
    index.stride[1][d] = x_stride[from];
  }
  Require(valid, Text(permutation), " does not permute the dimensions of ", Text(x));
  FillDenseStrides(Dims(index.size, x.size()), index.stride[0]);
  return Collapsed(index);
}

SliceIndex MakeSliceIndex(Dims whole, int64_t dim, int64_t start, int64_t length) {
  RequireRank(whole);
  const auto rank = static_cast<int64_t>(whole.size());
  Require(dim >= 0 && dim < rank && start >= 0 && length >= 0 && start <= whole[dim] - length,
          "no slice [", start, ", ", start, " + ", length, ") in dimension ", dim, " of ",
          Text(whole));
  SliceIndex slice{};
  slice.index.rank = rank;
  std::copy(whole.begin(), whole.end(), slice.index.size);
  slice.index.size[dim] = length;
  FillDenseStrides(Dims(slice.index.size, whole.size()), slice.index.stride[0]);
  FillDenseStrides(whole, slice.index.stride[1]);
  slice.offset = start * slice.index.stride[1][dim];
  slice.index = Collapsed(slice.index);
  return slice;
}

StridedIndex<2> Swapped(const StridedIndex<2>& index) {
  StridedIndex<2> swapped = index;
  std::copy(index.stride[1], index.stride[1] + kMaxDims, swapped.stride[0]);
  std::copy(index.stride[0], index.stride[0] + kMaxDims, swapped.stride[1]);
  return swapped;
}

}  // namespace pando
