#pragma once

// Sums over the rows of a matrix, as the gradients of biases and of LayerNorm's weights are, in two
// stages: each chunk of rows has a partial sum of its own, in scratch, and these are added in
// order. The chunks depend on sizes alone and nothing is atomic, so results are reproducible.

#include <algorithm>

#include "engine/cuda/block.h"
#include "engine/cuda/launch.h"
#include "engine/types.h"

namespace pando {

/// out[c] (+)= sum over k of partials[k * stride + c], c in [0, cols), and likewise for `second`
/// with the partials that begin `cols` further on. Either output may be null.
void AddPartials(const float* partials, int64_t count, int64_t stride, int64_t cols,
                 bool accumulate, float* first, float* second, void* stream);

/// Warps of a block of ColumnTiles, which take its rows in turn. Each warp has a Pack's width of
/// columns to a lane.
inline constexpr int kTileWarps = 8;
/// Fewest rows of a chunk: with fewer, partial sums would cost as much as the rows.
inline constexpr int kLeastChunk = 32;

/// How ColumnTiles cuts the rows.
struct RowChunks {
  int64_t rows;   ///< of a chunk; the last may have fewer
  int64_t count;  ///< of chunks
};

/// Chunks that fill a GPU with blocks, but have so many rows that partial sums cost little.
inline RowChunks ChunksForTiles(int64_t rows, int64_t cols) {
  constexpr int64_t kWantedBlocks = 1024;
  constexpr int64_t kColumns = 256;  // of a tile in 16 bits
  const int64_t tiles = std::max<int64_t>((cols + kColumns - 1) / kColumns, 1);
  const int64_t most = std::clamp<int64_t>(kWantedBlocks / tiles, 16, 128);
  const int64_t chunk = std::max<int64_t>((rows + most - 1) / most, kLeastChunk);
  return {chunk, (rows + chunk - 1) / chunk};
}

/// Bytes of the partial sums of ColumnTiles.
inline int64_t TilePartialBytes(int64_t rows, int64_t cols) {
  return ChunksForTiles(rows, cols).count * cols * static_cast<int64_t>(sizeof(float));
}

/// Goes over a matrix in tiles of columns by chunks of rows. `op` has T, kWide, kSums, a type
/// Loaded, and, called for kPackWidth<T> columns of which the first n count: `void Begin(column,
/// n)`, once, `Loaded Load(row, column, n)`, for kRows rows before the first of them is used, and
/// `void Use(loaded, row, column, n, sums)`. Use adds to sums[j] if kSums; over the chunk those
/// sums become partials[chunk * cols + column + j].
template <typename Op>
__global__ void __launch_bounds__(kTileWarps* kWarpSize, 4)
    ColumnTiles(Op op, int64_t rows, int64_t cols, int64_t chunk_rows, float* partials) {
  constexpr int kW = kPackWidth<typename Op::T>;
  constexpr int kTile = kW * kWarpSize;
  constexpr int kRows = Op::kWide ? Op::kRows : 1;
  const auto tiles = static_cast<unsigned>((cols + kTile - 1) / kTile);
  const int64_t chunk = blockIdx.x / tiles;
  const int64_t tile = blockIdx.x % tiles;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t column = tile * kTile + lane * int64_t{kW};
  const int64_t left = cols - column;
  const int n = Op::kWide || left >= kW ? kW : static_cast<int>(left);
  const int64_t begin = chunk * chunk_rows;
  const int64_t end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
  float sums[kW] = {};
  if (left > 0) {
    op.Begin(column, n);
    for (int64_t row = begin + warp; row < end; row += int64_t{kTileWarps} * kRows) {
      typename Op::Loaded loaded[kRows];
      PANDO_UNROLL
      for (int u = 0; u < kRows; ++u) {
        const int64_t r = row + u * int64_t{kTileWarps};
        if (r < end) loaded[u] = op.Load(r, column, n);
      }
      PANDO_UNROLL
      for (int u = 0; u < kRows; ++u) {
        const int64_t r = row + u * int64_t{kTileWarps};
        if (r < end) op.Use(loaded[u], r, column, n, sums);
      }
    }
  }
  if constexpr (Op::kSums) {
    float* shared = SharedMemory<float>();
    for (int j = 0; j < kW; ++j) shared[warp * kTile + lane * kW + j] = sums[j];
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x);
    if (t < kTile && tile * kTile + t < cols) {
      float sum = shared[t];
      for (int w = 1; w < kTileWarps; ++w) sum += shared[w * kTile + t];
      partials[chunk * cols + tile * kTile + t] = sum;
    }
  }
}

/// Launches ColumnTiles; `partials` has TilePartialBytes bytes, or is null if there are no sums.
template <typename Op>
void LaunchColumnTiles(const Op& op, int64_t rows, int64_t cols, float* partials, void* stream) {
  constexpr int kTile = kPackWidth<typename Op::T> * kWarpSize;
  const RowChunks chunks = ChunksForTiles(rows, cols);
  const int64_t blocks = (cols + kTile - 1) / kTile * chunks.count;
  const int64_t shared =
      Op::kSums ? int64_t{kTileWarps} * kTile * static_cast<int64_t>(sizeof(float)) : 0;
  Launch(ColumnTiles<Op>, static_cast<unsigned>(blocks), kTileWarps * kWarpSize, shared, stream, op,
         rows, cols, chunks.rows, partials);
}

}  // namespace pando
