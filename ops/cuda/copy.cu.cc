#include "ops/kernels/copy.h"

#include "ops/cuda/integer_cast.h"
#include "ops/cuda/pieces.h"
#include "ops/cuda/tables.h"

namespace pando {
namespace {

template <typename U>
__global__ void CopyPieces(U* y, const U* x, PieceGrid<2> grid) {
  constexpr int kW = kPackWidth<U>;
  for (int64_t i = GridThread(); i < grid.count; i += GridThreads()) {
    const Piece<2> piece = PieceAt(grid, i);
    U v[kW];
    LoadPiece(x + piece.at[1], PieceStride(grid, 1), IsWide(grid, piece, 1), piece.n, v);
    StorePiece(y + piece.at[0], PieceStride(grid, 0), IsWide(grid, piece, 0), piece.n, v);
  }
}

// A transpose: y is contiguous along the last dimension, x along another one.
struct Transpose {
  Box<2> outer;        // all dimensions but these two
  int64_t rows, cols;  // y[r * y_step + c] = x[c * x_step + r]
  int64_t y_step, x_step;
  int64_t row_tiles, col_tiles;
  Divisor by_row_tiles, by_col_tiles;
  int64_t tiles;  // in all
};

// Elements of a tile in each direction, and how far apart its rows lie in shared memory: an odd
// number of words, so that a warp reads a column without conflicts of banks.
template <typename U>
constexpr int kTile = sizeof(U) == 2 ? 64 : 32;
template <typename U>
constexpr int kPitch = kTile<U> + (sizeof(U) == 2 ? 2 : 1);

// From so many rows and columns on a tile pays; below, most of it would stay empty.
constexpr int64_t kLeastTransposed = 16;

// Finds the dimension along which x is contiguous; returns whether `index` is a large transpose.
bool AsTranspose(const StridedIndex<2>& index, int64_t tile, Transpose* t) {
  const int64_t last = index.rank - 1;
  if (index.stride[0][last] != 1 || index.stride[1][last] <= 1) return false;
  int64_t d = 0;
  while (d < last && index.stride[1][d] != 1) ++d;
  if (d == last) return false;
  if (index.size[d] < kLeastTransposed || index.size[last] < kLeastTransposed) return false;
  StridedIndex<2> outer = {1, {1}, {}};
  int64_t rank = 0;
  for (int64_t e = 0; e < last; ++e) {
    if (e == d) continue;
    outer.size[rank] = index.size[e];
    for (int k = 0; k < 2; ++k) outer.stride[k][rank] = index.stride[k][e];
    ++rank;
  }
  if (rank > 0) outer.rank = rank;
  t->outer = MakeBox(outer);
  t->rows = index.size[d];
  t->cols = index.size[last];
  t->y_step = index.stride[0][d];
  t->x_step = index.stride[1][last];
  t->row_tiles = (t->rows + tile - 1) / tile;
  t->col_tiles = (t->cols + tile - 1) / tile;
  t->by_row_tiles = MakeDivisor(t->row_tiles);
  t->by_col_tiles = MakeDivisor(t->col_tiles);
  t->tiles = Count(outer) * t->row_tiles * t->col_tiles;
  return true;
}

// Tile by tile through shared memory, so that both x and y are touched along rows.
template <typename U>
__global__ void CopyTransposed(U* y, const U* x, Transpose t) {
  constexpr int kT = kTile<U>;
  U* tile = SharedMemory<U>();  // [kT columns][kPitch]
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  constexpr int kWarps = kPieceThreads / kWarpSize;
  for (int64_t i = blockIdx.x; i < t.tiles; i += gridDim.x) {
    const int64_t in_rows = Quotient(i, t.by_col_tiles);
    const int64_t box = Quotient(in_rows, t.by_row_tiles);
    const int64_t r0 = (in_rows - box * t.row_tiles) * kT;
    const int64_t c0 = (i - in_rows * t.col_tiles) * kT;
    int64_t at[2] = {r0 * t.y_step + c0, c0 * t.x_step + r0};
    AddOffsets(t.outer, box, at);
    for (int c = warp; c < kT && c0 + c < t.cols; c += kWarps) {
      for (int r = lane; r < kT && r0 + r < t.rows; r += kWarpSize) {
        tile[c * kPitch<U> + r] = x[at[1] + c * t.x_step + r];
      }
    }
    __syncthreads();
    for (int r = warp; r < kT && r0 + r < t.rows; r += kWarps) {
      for (int c = lane; c < kT && c0 + c < t.cols; c += kWarpSize) {
        y[at[0] + r * t.y_step + c] = tile[c * kPitch<U> + r];
      }
    }
    __syncthreads();
  }
}

void Copy(const CopyArgs& args, void* stream) {
  DispatchSize(args.dtype, [&](auto tag) {
    using U = decltype(tag);
    U* y = static_cast<U*>(args.y);
    const U* x = static_cast<const U*>(args.x);
    Transpose transpose;
    if (AsTranspose(args.index, kTile<U>, &transpose)) {
      Launch(CopyTransposed<U>, GridFor(transpose.tiles, 1), kPieceThreads,
             kTile<U> * kPitch<U> * sizeof(U), stream, y, x, transpose);
      return;
    }
    const PieceGrid<2> grid = MakePieces(args.index, kPackWidth<U>, {y, x});
    Launch(CopyPieces<U>, PieceBlocks(grid.count), kPieceThreads, 0, stream, y, x, grid);
  });
}

template <typename Y, typename X>
__global__ void AddIntoPieces(Y* y, const X* x, PieceGrid<2> grid) {
  constexpr int kW = kPackWidth<Y>;
  using C = ComputeType<Y>;
  for (int64_t i = GridThread(); i < grid.count; i += GridThreads()) {
    const Piece<2> piece = PieceAt(grid, i);
    const int64_t y_stride = PieceStride(grid, 0);
    const bool wide_y = IsWide(grid, piece, 0);
    Y sum[kW];
    ComputeType<X> v[kW];
    LoadPiece(y + piece.at[0], y_stride, wide_y, piece.n, sum);
    LoadValues(x + piece.at[1], PieceStride(grid, 1), IsWide(grid, piece, 1), piece.n, v);
    for (int j = 0; j < kW; ++j) sum[j] = RoundTo<Y>(ToFloat(sum[j]) + C{v[j]});
    StorePiece(y + piece.at[0], y_stride, wide_y, piece.n, sum);
  }
}

void AddInto(const AddIntoArgs& args, void* stream) {
  DispatchGradient("add_into", args.y_dtype, args.x_dtype, [&](auto y_tag, auto x_tag) {
    using Y = decltype(y_tag);
    using X = decltype(x_tag);
    const PieceGrid<2> grid = MakePieces(args.index, kPackWidth<Y>, {args.y, args.x});
    Launch(AddIntoPieces<Y, X>, PieceBlocks(grid.count), kPieceThreads, 0, stream,
           static_cast<Y*>(args.y), static_cast<const X*>(args.x), grid);
  });
}

}  // namespace

const CopyKernels kCudaCopy = {
    .copy = Copy,
    .add_into = AddInto,
    .integer_cast = CudaIntegerCast,
};

}  // namespace pando
