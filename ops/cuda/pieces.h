#pragma once

// Boxes of elements cut into pieces along their innermost dimension: what a thread of the basic
// kernels handles at a time. A whole piece is loaded and stored 16 bytes at once wherever it lies
// contiguous and aligned; everything else goes element by element through the same code.

#include "engine/cuda/block.h"
#include "engine/cuda/dispatch.h"
#include "engine/cuda/launch.h"
#include "engine/types.h"
#include "ops/cuda/divisor.h"
#include "ops/kernels/strided.h"

namespace pando {

/// Threads of a block of the elementwise kernels.
inline constexpr unsigned kPieceThreads = 256;

/// DispatchCuda over all floating dtypes.
template <typename Body>
void DispatchFloating(const char* kernel, DType dtype, const Body& body) {
  DispatchCuda<float, BFloat16, Float16, double>(kernel, dtype, body);
}

/// For gradients: body(Y{}, X{}), where Y is the same as X or float.
template <typename Body>
void DispatchGradient(const char* kernel, DType y_dtype, DType x_dtype, const Body& body) {
  if (y_dtype == x_dtype) {
    DispatchFloating(kernel, x_dtype, [&](auto tag) { body(tag, tag); });
    return;
  }
  if (y_dtype != DType::kF32) ThrowUnsupportedOnCuda(kernel, y_dtype);
  DispatchCuda<BFloat16, Float16>(kernel, x_dtype, [&](auto tag) { body(float{}, tag); });
}

/// For kernels that only move elements: body(unsigned integer of the size of a `dtype`).
template <typename Body>
void DispatchSize(DType dtype, const Body& body) {
  switch (SizeOf(dtype)) {
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    default:
      return body(uint64_t{});
  }
}

/// An element as it is computed with: f32 for the 16-bit floats, the rest as they are.
template <typename T>
__device__ inline T ValueOf(T x) {
  return x;
}
__device__ inline float ValueOf(BFloat16 x) { return ToFloat(x); }
__device__ inline float ValueOf(Float16 x) { return ToFloat(x); }
template <typename T>
using ValueType = decltype(ValueOf(T{}));

/// A box of which the device can find elements by their numbers.
template <int N>
struct Box {
  StridedIndex<N> index;
  Divisor by_size[kMaxDims];
};

template <int N>
Box<N> MakeBox(const StridedIndex<N>& index) {
  Box<N> box = {index, {}};
  for (int64_t d = 0; d < index.rank; ++d) {
    if (index.size[d] > 0) box.by_size[d] = MakeDivisor(index.size[d]);
  }
  return box;
}

/// Adds to at[k] where element number `i`, in row-major order, of the first `rank` dimensions lies.
template <int N>
__device__ inline void AddOffsets(const Box<N>& box, int64_t rank, int64_t i, int64_t (&at)[N]) {
  for (int64_t d = rank - 1; d >= 0; --d) {
    const int64_t rest = d > 0 ? Quotient(i, box.by_size[d]) : 0;
    const int64_t c = i - rest * box.index.size[d];
    for (int k = 0; k < N; ++k) at[k] += c * box.index.stride[k][d];
    i = rest;
  }
}
template <int N>
__device__ inline void AddOffsets(const Box<N>& box, int64_t i, int64_t (&at)[N]) {
  AddOffsets(box, box.index.rank, i, at);
}

/// A box in pieces of `width` elements; only the last one of a row may have fewer.
template <int N>
struct PieceGrid {
  Box<N> box;
  int64_t width;
  int64_t per_row;  ///< pieces in a row of the innermost dimension
  int64_t count;    ///< pieces in all
  Divisor by_row;   ///< per_row
  unsigned wide;    ///< bit k: whole pieces of operand k can be loaded at once
};

/// Whether the strides of operand k in its first `rank` dimensions are multiples of `width`.
template <int N>
bool StridesDivide(const StridedIndex<N>& index, int k, int64_t rank, int64_t width) {
  for (int64_t d = 0; d < rank; ++d) {
    if (index.stride[k][d] % width != 0) return false;
  }
  return true;
}

/// Cuts `index`, whose operands lie at `data` (to see whether they are aligned).
template <int N>
PieceGrid<N> MakePieces(const StridedIndex<N>& index, int64_t width, const void* const (&data)[N]) {
  const int64_t last = index.rank - 1;
  PieceGrid<N> grid = {MakeBox(index), width, 0, 0, {}, 0};
  if (Count(index) == 0) return grid;
  grid.per_row = (index.size[last] + width - 1) / width;
  grid.count = Count(index) / index.size[last] * grid.per_row;
  grid.by_row = MakeDivisor(grid.per_row);
  for (int k = 0; k < N; ++k) {
    const bool wide = index.stride[k][last] == 1 && IsWideAligned(data[k]) &&
                      StridesDivide(index, k, last, width);
    if (wide) grid.wide |= 1u << k;
  }
  return grid;
}

/// Whether whole pieces of a row-major contiguous result begin aligned.
template <int N>
bool IsWideResult(const PieceGrid<N>& grid, const void* y) {
  const StridedIndex<N>& index = grid.box.index;
  return IsWideAligned(y) && (index.rank == 1 || index.size[index.rank - 1] % grid.width == 0);
}

/// One piece: where each operand has its first element, and that one's row-major number.
template <int N>
struct Piece {
  int64_t at[N];
  int64_t first;
  int n;  ///< elements, at most the grid's width
};

template <int N>
__device__ inline Piece<N> PieceAt(const PieceGrid<N>& grid, int64_t i) {
  const StridedIndex<N>& index = grid.box.index;
  const int64_t last = index.rank - 1;
  const int64_t row = last > 0 ? Quotient(i, grid.by_row) : 0;
  const int64_t column = (i - row * grid.per_row) * grid.width;
  const int64_t left = index.size[last] - column;
  Piece<N> piece;
  piece.first = row * index.size[last] + column;
  piece.n = static_cast<int>(left < grid.width ? left : grid.width);
  for (int k = 0; k < N; ++k) piece.at[k] = column * index.stride[k][last];
  AddOffsets(grid.box, last, row, piece.at);
  return piece;
}

/// The stride of operand k along a piece.
template <int N>
PANDO_HOST_DEVICE inline int64_t PieceStride(const PieceGrid<N>& grid, int k) {
  return grid.box.index.stride[k][grid.box.index.rank - 1];
}

/// Whether operand k of this piece can be loaded or stored at once.
template <int N>
__device__ inline bool IsWide(const PieceGrid<N>& grid, const Piece<N>& piece, int k) {
  return (grid.wide >> k & 1) != 0 && piece.n == grid.width;
}

/// Elements that one load or store of a piece of W takes.
template <typename T, int W>
inline constexpr int kChunk = W < kPackWidth<T> ? W : kPackWidth<T>;

/// v = W elements from p on; of n < W the first is repeated in place of those that are missing.
template <int W, typename T>
__device__ inline void LoadPiece(const T* p, int64_t stride, bool wide, int n, T (&v)[W]) {
  if (wide) {
    for (int j = 0; j < W; j += kChunk<T, W>) {
      const auto chunk = *reinterpret_cast<const Pack<T, kChunk<T, W>>*>(p + j);
      for (int i = 0; i < kChunk<T, W>; ++i) v[j + i] = chunk.v[i];
    }
  } else {
    for (int j = 0; j < W; ++j) v[j] = p[j < n ? j * stride : 0];
  }
}

/// The first n elements of v from p on.
template <int W, typename T>
__device__ inline void StorePiece(T* p, int64_t stride, bool wide, int n, const T (&v)[W]) {
  if (wide) {
    for (int j = 0; j < W; j += kChunk<T, W>) {
      Pack<T, kChunk<T, W>> chunk;
      for (int i = 0; i < kChunk<T, W>; ++i) chunk.v[i] = v[j + i];
      *reinterpret_cast<Pack<T, kChunk<T, W>>*>(p + j) = chunk;
    }
  } else {
    for (int j = 0; j < W; ++j) {
      if (j < n) p[j * stride] = v[j];
    }
  }
}

/// LoadPiece, as values to compute with.
template <int W, typename T>
__device__ inline void LoadValues(const T* p, int64_t stride, bool wide, int n,
                                  ValueType<T> (&v)[W]) {
  T elements[W];
  LoadPiece(p, stride, wide, n, elements);
  for (int j = 0; j < W; ++j) v[j] = ValueOf(elements[j]);
}

/// n contiguous elements, of which piece i has those from i * W on.
struct Flat {
  int64_t n;
  bool wide;  ///< all data are aligned
};

template <int W>
PANDO_HOST_DEVICE inline int64_t PiecesOf(Flat flat) {
  return (flat.n + W - 1) / W;
}

/// Elements of the piece that begins at `first`.
template <int W>
__device__ inline int LengthAt(Flat flat, int64_t first) {
  const int64_t left = flat.n - first;
  return static_cast<int>(left < W ? left : W);
}

/// Blocks of kPieceThreads for so many pieces, one to a thread as long as the grid allows.
inline unsigned PieceBlocks(int64_t pieces) { return GridFor(pieces, kPieceThreads); }

}  // namespace pando
