#pragma once

// What attention's kernels share: tiles of rows in shared memory, and their two products.
//
// A warp owns one or two bands of 16 rows of a tile; two, where registers allow, as what it reads
// of the other tile then serves both. Its scores and sums lie as tensor cores leave them: with
// g = lane / 4 and t = lane % 4, [band][n] holds elements (g, 8n + 2t), (g, 8n + 2t + 1),
// (g + 8, 8n + 2t) and (g + 8, 8n + 2t + 1) of the band. f32 is multiplied without tensor cores,
// exactly, but lies the same, so that kernels are written once.

#include <cstdint>

#include "engine/cuda/block.h"
#include "engine/cuda/launch.h"
#include "engine/cuda/ptx.h"
#include "ops/kernels/attention.h"

namespace pando {

inline constexpr int kBandRows = 16;
/// A multiple of every tile's rows.
inline constexpr int kMostTileRows = 128;
inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kLn2 = 0.693147181F;

/// What kernels need of the shape's f64 numbers, worked out on the host.
struct AttentionScalars {
  float score_scale;   ///< to scores in units of ln 2
  float kept_scale;    ///< 1 / (1 - dropout)
  uint32_t threshold;  ///< random bits below it drop
  bool wide;           ///< all rows are aligned to 16 bytes

  AttentionScalars(const AttentionShape& s, bool rows_are_aligned)
      : score_scale(static_cast<float>(s.scale * 1.4426950408889634)),
        kept_scale(static_cast<float>(1.0 / (1.0 - s.dropout))),
        threshold(DropThreshold(s.dropout)),
        wide(rows_are_aligned) {}
};

/// What each query adds to its scores' gradients: rows of `padded` f32, one for each head of each
/// sample.
struct QueryStatistics {
  float* lse;    ///< in units of ln 2; infinity where a query sees nothing
  float* delta;  ///< rowsum(dout * out)
  int64_t padded;
};

/// Element (row, head) of sample b.
template <typename T>
__device__ inline const T* RowAt(const ConstAttentionRows& rows, int64_t b, int64_t row,
                                 int64_t head, int64_t d) {
  return static_cast<const T*>(rows.data) + b * rows.batch_stride + row * rows.row_stride +
         head * d;
}
template <typename T>
__device__ inline T* RowAt(const AttentionRows& rows, int64_t b, int64_t row, int64_t head,
                           int64_t d) {
  return static_cast<T*>(rows.data) + b * rows.batch_stride + row * rows.row_stride + head * d;
}

/// Rows of kDim elements in shared memory, in chunks of 16 bytes. Where a chunk of a row lies is
/// chosen such that eight rows' same chunk are in different banks: by turning the order of chunks
/// (16-bit types), or by padding (f32).
template <typename T, int kDim>
struct SharedRows {
  static constexpr int kPerChunk = kPackWidth<T>;
  static constexpr int kChunks = kDim / kPerChunk;
  static constexpr int kStride = sizeof(T) == 2 ? kDim : kDim + kPerChunk;
  static_assert(kChunks % 8 == 0);

  /// Where chunk `chunk` + `step` of a row begins; step is constant, and chunk is 0 or 1 if step is
  /// not 0. So addresses of different steps differ by little that is not constant.
  static __device__ int At(int row, int chunk, int step = 0) {
    if constexpr (sizeof(T) != 2) return row * kStride + (chunk + step) * kPerChunk;
    const int turned = (chunk ^ (row & 7)) ^ (step & 7);
    return row * kStride + turned * kPerChunk + (step & ~7) * kPerChunk;
  }
  static constexpr int64_t Bytes(int rows) { return int64_t{rows} * kStride * sizeof(T); }
};

/// Rows of one head in global memory, from a tile's first on.
template <typename T>
struct GlobalRows {
  T* data;
  int64_t stride;
  int begin, end;  ///< rows that exist, or count as if
  int dim;         ///< elements of a row
  bool wide;       ///< rows are aligned to 16 bytes, and dim a multiple of that
};

/// Begins to load kRows rows by all kThreads threads; zeros where nothing exists.
template <typename T, int kDim, int kRows, int kThreads>
__device__ inline void LoadTile(T* to, const GlobalRows<const T>& from) {
  using Rows = SharedRows<T, kDim>;
  using Wide = Pack<T, Rows::kPerChunk>;
  constexpr int kStep = kThreads / Rows::kChunks;  // rows that are loaded at once
  static_assert(kThreads % Rows::kChunks == 0 && kRows % kStep == 0);
  const int chunk = static_cast<int>(threadIdx.x) % Rows::kChunks;
  const int first = static_cast<int>(threadIdx.x) / Rows::kChunks;
  const int column = chunk * Rows::kPerChunk;
  const T* source = from.data + first * from.stride + column;
  if (from.wide) {
    const int end = column < from.dim ? from.end : 0;
    PANDO_UNROLL
    for (int n = 0; n < kRows / kStep; ++n, source += kStep * from.stride) {
      const int row = first + n * kStep;
      CopyAsync16(to + Rows::At(row, chunk), source, row >= from.begin && row < end);
    }
  } else {
    PANDO_NO_UNROLL
    for (int row = first; row < kRows; row += kStep, source += kStep * from.stride) {
      const bool exists = row >= from.begin && row < from.end;
      Wide pack;
      PANDO_UNROLL
      for (int e = 0; e < Rows::kPerChunk; ++e) {
        pack.v[e] = exists && column + e < from.dim ? source[e] : RoundTo<T>(0.0F);
      }
      *reinterpret_cast<Wide*>(to + Rows::At(row, chunk)) = pack;
    }
  }
}

/// scores[m][n] += rows of a times rows of b: kBands bands of 16 rows of a, kRows rows of b.
template <typename T, int kDim, int kRows, int kBands>
__device__ inline void ScoreProduct(const T* a, const T* b, float (&scores)[kBands][kRows / 8][4]) {
  using Rows = SharedRows<T, kDim>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if constexpr (sizeof(T) == 2) {
    PANDO_UNROLL
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t left[kBands][4];
      PANDO_UNROLL
      for (int m = 0; m < kBands; ++m) {
        LoadMatrix<false>(left[m],
                          a + 16 * m * Rows::kStride + Rows::At(lane % 16, lane / 16, 2 * k));
      }
      PANDO_UNROLL
      for (int n = 0; n < kRows / 16; ++n) {
        uint32_t right[4];
        LoadMatrix<false>(right,
                          b + Rows::At(16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        PANDO_UNROLL
        for (int m = 0; m < kBands; ++m) {
          MmaM16N8K16<T>(scores[m][2 * n], left[m], right[0], right[1]);
          MmaM16N8K16<T>(scores[m][2 * n + 1], left[m], right[2], right[3]);
        }
      }
    }
  } else {
    static_assert(kBands == 1);
    using Four = Pack<float, 4>;
    const int g = lane / 4, t = lane % 4;
    for (int chunk = 0; chunk < Rows::kChunks; ++chunk) {
      const Four upper = *reinterpret_cast<const Four*>(a + Rows::At(g, chunk));
      const Four lower = *reinterpret_cast<const Four*>(a + Rows::At(g + 8, chunk));
      PANDO_UNROLL
      for (int n = 0; n < kRows / 8; ++n) {
        PANDO_UNROLL
        for (int i = 0; i < 2; ++i) {
          const Four right = *reinterpret_cast<const Four*>(b + Rows::At(8 * n + 2 * t + i, chunk));
          PANDO_UNROLL
          for (int e = 0; e < 4; ++e) {
            scores[0][n][i] += upper.v[e] * right.v[e];
            scores[0][n][2 + i] += lower.v[e] * right.v[e];
          }
        }
      }
    }
  }
}

/// sums[m][n] += weights[m] times rows of b: bands of 16 rows of weights, rounded to T, over kRows
/// rows of b, of which the kColumns elements from chunk `first_chunk` on are taken.
template <typename T, int kDim, int kRows, int kColumns, int kBands>
__device__ inline void WeightedRows(const float (&weights)[kBands][kRows / 8][4], const T* b,
                                    int first_chunk, float (&sums)[kBands][kColumns / 8][4]) {
  using Rows = SharedRows<T, kDim>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if constexpr (sizeof(T) == 2) {
    PANDO_UNROLL
    for (int k = 0; k < kRows / 16; ++k) {
      uint32_t left[kBands][4];
      PANDO_UNROLL
      for (int m = 0; m < kBands; ++m) {
        PANDO_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float* const pair = weights[m][2 * k + i / 2] + i % 2 * 2;
          left[m][i] = PackPair<T>(pair[0], pair[1]);
        }
      }
      PANDO_UNROLL
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t right[4];
        LoadMatrix<true>(right, b + 16 * k * Rows::kStride + first_chunk * Rows::kPerChunk +
                                    Rows::At(lane % 16, lane / 16, 2 * n));
        PANDO_UNROLL
        for (int m = 0; m < kBands; ++m) {
          MmaM16N8K16<T>(sums[m][2 * n], left[m], right[0], right[1]);
          MmaM16N8K16<T>(sums[m][2 * n + 1], left[m], right[2], right[3]);
        }
      }
    }
  } else {
    static_assert(kBands == 1);
    using Two = Pack<float, 2>;
    const int t = lane % 4;
    PANDO_UNROLL
    for (int k = 0; k < kRows; ++k) {
      const int owner = lane - t + k % 8 / 2;
      const float upper = __shfl_sync(kFullMask, weights[0][k / 8][k % 2], owner);
      const float lower = __shfl_sync(kFullMask, weights[0][k / 8][2 + k % 2], owner);
      const T* row = b + Rows::At(k, first_chunk) + 2 * t;
      PANDO_UNROLL
      for (int n = 0; n < kColumns / 8; ++n) {
        const Two right = *reinterpret_cast<const Two*>(row + 8 * n);
        sums[0][n][0] += upper * right.v[0];
        sums[0][n][1] += upper * right.v[1];
        sums[0][n][2] += lower * right.v[0];
        sums[0][n][3] += lower * right.v[1];
      }
    }
  }
}

/// Writes a band of 16 rows, row g times scale[0] and row g + 8 times scale[1]. `staging` is room
/// for 16 SharedRows that only this warp uses.
template <typename T, int kDim, int kColumns>
__device__ inline void StoreTile(const float (&sums)[kColumns / 8][4], const float (&scale)[2],
                                 T* staging, const GlobalRows<T>& to) {
  using Rows = SharedRows<T, kDim>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int g = lane / 4, t = lane % 4;
  __syncwarp();
  PANDO_UNROLL
  for (int n = 0; n < kColumns / 8; ++n) {
    const int column = 8 * n + 2 * t;
    PANDO_UNROLL
    for (int r = 0; r < 2; ++r) {
      T* at = staging + Rows::At(g + 8 * r, column / Rows::kPerChunk) + column % Rows::kPerChunk;
      const float low = sums[n][2 * r] * scale[r], high = sums[n][2 * r + 1] * scale[r];
      if constexpr (sizeof(T) == 2) {
        *reinterpret_cast<uint32_t*>(at) = PackPair<T>(low, high);
      } else {
        *reinterpret_cast<Pack<float, 2>*>(at) = {low, high};
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kColumns / Rows::kPerChunk;
  for (int i = lane; i < kBandRows * kChunks; i += kWarpSize) {
    const int row = i / kChunks, chunk = i % kChunks;
    const int column = chunk * Rows::kPerChunk;
    if (row < to.begin || row >= to.end) continue;
    using Wide = Pack<T, Rows::kPerChunk>;
    const Wide pack = *reinterpret_cast<const Wide*>(staging + Rows::At(row, chunk));
    T* out = to.data + row * to.stride + column;
    if (to.wide) {
      if (column < to.dim) *reinterpret_cast<Wide*>(out) = pack;
    } else {
      for (int e = 0; e < Rows::kPerChunk && column + e < to.dim; ++e) out[e] = pack.v[e];
    }
  }
}

/// x held to [0, limit], as an int: positions within a tile.
__device__ inline int Within(int64_t x, int limit) {
  return x < 0 ? 0 : (x > limit ? limit : static_cast<int>(x));
}

/// The tile of a head that a block owns. Neighbouring blocks share a head, and so what they read.
/// Positions are ints, which CheckAttentionShape sees to: they live in registers.
struct HeadTile {
  int b, head;
  int row;  ///< its first

  /// Tiles of `rows` out of `length`; first or last ones first.
  __device__ HeadTile(int64_t heads, int64_t length, int rows, bool last_first) {
    const auto tiles = (static_cast<unsigned>(length) + rows - 1) / rows;
    const unsigned all = blockIdx.x / tiles;
    const unsigned tile = blockIdx.x - all * tiles;
    row = static_cast<int>((last_first ? tiles - 1 - tile : tile) * rows);
    b = static_cast<int>(all / static_cast<unsigned>(heads));
    head = static_cast<int>(all) - b * static_cast<int>(heads);
  }
};

/// Blocks for all of these tiles.
inline dim3 HeadTiles(const AttentionShape& s, int64_t heads, int64_t length, int rows) {
  return dim3(static_cast<unsigned>(s.batch * heads * ((length + rows - 1) / rows)));
}

/// Which keys a tile of `rows` queries from `row` sees, and the warp with `warp_rows` of them from
/// `warp_row`.
struct TileView {
  int begin, end;    ///< the tile's queries that see any
  int key_end;       ///< one past the last key that any of them sees
  int warp_key_end;  ///< the same for this warp's
  int common_end;    ///< keys below it are seen by all of this warp's

  __device__ TileView(const AttentionVisible& see, int64_t row, int rows, int64_t warp_row,
                      int warp_rows)
      : begin(Within(see.first - row, rows)), end(Within(see.end - row, rows)) {
    key_end = begin < end ? static_cast<int>(see.KeyEnd(row + end - 1)) : 0;
    const int64_t warp_end = warp_row + warp_rows < see.end ? warp_row + warp_rows : see.end;
    const bool some_see = warp_end > warp_row && warp_end > see.first;
    warp_key_end = some_see ? static_cast<int>(see.KeyEnd(warp_end - 1)) : 0;
    const bool all_see = see.first <= warp_row && warp_row + warp_rows <= see.end;
    common_end = all_see ? static_cast<int>(see.KeyEnd(warp_row)) : 0;
  }
};

/// Keys that query i sees.
__device__ inline int KeysSeen(const AttentionVisible& see, int64_t i) {
  return i >= see.first && i < see.end ? static_cast<int>(see.KeyEnd(i)) : 0;
}

}  // namespace pando
