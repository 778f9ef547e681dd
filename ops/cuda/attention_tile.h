#pragma once

// What attention's kernels share: tiles of rows in shared memory, and their two products.
//
// A warp owns 16 rows of a tile. Its scores and sums lie as tensor cores leave them: with
// g = lane / 4 and t = lane % 4, tile[n] holds elements (g, 8n + 2t), (g, 8n + 2t + 1),
// (g + 8, 8n + 2t) and (g + 8, 8n + 2t + 1). f32 is multiplied without tensor cores, exactly, but
// lies the same, so that kernels are written once.

#include <cstdint>

#include "engine/cuda/block.h"
#include "engine/cuda/launch.h"
#include "engine/cuda/ptx.h"
#include "ops/kernels/attention.h"

namespace pando {

inline constexpr int kFragmentRows = 16;
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

  static __device__ int At(int row, int chunk) {
    return row * kStride + (sizeof(T) == 2 ? chunk ^ (row & 7) : chunk) * kPerChunk;
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
  static_assert(kRows * Rows::kChunks % kThreads == 0);
  if (from.wide) {
    PANDO_UNROLL
    for (int n = 0; n < kRows * Rows::kChunks / kThreads; ++n) {
      const int i = static_cast<int>(threadIdx.x) + n * kThreads;
      const int row = i / Rows::kChunks, chunk = i % Rows::kChunks;
      const bool exists = row >= from.begin && row < from.end && chunk * Rows::kPerChunk < from.dim;
      const T* source = from.data + row * from.stride + chunk * Rows::kPerChunk;
      CopyAsync16(to + Rows::At(row, chunk), exists ? source : from.data, exists);
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * Rows::kChunks; i += kThreads) {
      const int row = i / Rows::kChunks, chunk = i % Rows::kChunks;
      const int column = chunk * Rows::kPerChunk;
      const bool exists = row >= from.begin && row < from.end;
      Pack<T, Rows::kPerChunk> pack;
      for (int e = 0; e < Rows::kPerChunk; ++e) {
        pack.v[e] = exists && column + e < from.dim ? from.data[row * from.stride + column + e]
                                                    : RoundTo<T>(0.0F);
      }
      *reinterpret_cast<Pack<T, Rows::kPerChunk>*>(to + Rows::At(row, chunk)) = pack;
    }
  }
}

/// scores[n] += rows of a times rows of b: 16 rows of a, kRows of b.
template <typename T, int kDim, int kRows>
__device__ inline void ScoreProduct(const T* a, const T* b, float (&scores)[kRows / 8][4]) {
  using Rows = SharedRows<T, kDim>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if constexpr (sizeof(T) == 2) {
    PANDO_UNROLL
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t left[4];
      LoadMatrix<false>(left, a + Rows::At(lane % 16, 2 * k + lane / 16));
      PANDO_UNROLL
      for (int n = 0; n < kRows / 16; ++n) {
        uint32_t right[4];
        LoadMatrix<false>(right,
                          b + Rows::At(16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        MmaM16N8K16<T>(scores[2 * n], left, right[0], right[1]);
        MmaM16N8K16<T>(scores[2 * n + 1], left, right[2], right[3]);
      }
    }
  } else {
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
            scores[n][i] += upper.v[e] * right.v[e];
            scores[n][2 + i] += lower.v[e] * right.v[e];
          }
        }
      }
    }
  }
}

/// sums[n] += weights times rows of b: 16 rows of weights, rounded to T, over kRows rows of b, of
/// which the kColumns elements from chunk `first_chunk` on are taken.
template <typename T, int kDim, int kRows, int kColumns>
__device__ inline void WeightedRows(const float (&weights)[kRows / 8][4], const T* b,
                                    int first_chunk, float (&sums)[kColumns / 8][4]) {
  using Rows = SharedRows<T, kDim>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if constexpr (sizeof(T) == 2) {
    PANDO_UNROLL
    for (int k = 0; k < kRows / 16; ++k) {
      const float(&w)[4] = weights[2 * k];
      const float(&x)[4] = weights[2 * k + 1];
      const uint32_t left[4] = {PackPair<T>(w[0], w[1]), PackPair<T>(w[2], w[3]),
                                PackPair<T>(x[0], x[1]), PackPair<T>(x[2], x[3])};
      PANDO_UNROLL
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t right[4];
        LoadMatrix<true>(right, b + Rows::At(16 * k + lane % 16, first_chunk + 2 * n + lane / 16));
        MmaM16N8K16<T>(sums[2 * n], left, right[0], right[1]);
        MmaM16N8K16<T>(sums[2 * n + 1], left, right[2], right[3]);
      }
    }
  } else {
    using Two = Pack<float, 2>;
    const int t = lane % 4;
    PANDO_UNROLL
    for (int k = 0; k < kRows; ++k) {
      const int owner = lane - t + k % 8 / 2;
      const float upper = __shfl_sync(kFullMask, weights[k / 8][k % 2], owner);
      const float lower = __shfl_sync(kFullMask, weights[k / 8][2 + k % 2], owner);
      const T* row = b + Rows::At(k, first_chunk) + 2 * t;
      PANDO_UNROLL
      for (int n = 0; n < kColumns / 8; ++n) {
        const Two right = *reinterpret_cast<const Two*>(row + 8 * n);
        sums[n][0] += upper * right.v[0];
        sums[n][1] += upper * right.v[1];
        sums[n][2] += lower * right.v[0];
        sums[n][3] += lower * right.v[1];
      }
    }
  }
}

/// Writes a warp's 16 rows, row g times scale[0] and row g + 8 times scale[1]. `staging` is room
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
      at[0] = RoundTo<T>(sums[n][2 * r] * scale[r]);
      at[1] = RoundTo<T>(sums[n][2 * r + 1] * scale[r]);
    }
  }
  __syncwarp();
  constexpr int kChunks = kColumns / Rows::kPerChunk;
  for (int i = lane; i < kFragmentRows * kChunks; i += kWarpSize) {
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
struct HeadTile {
  int64_t b, head;
  int64_t row;  ///< its first

  /// Tiles of `rows` out of `length`; first or last ones first.
  __device__ HeadTile(int64_t heads, int64_t length, int rows, bool last_first) {
    const int64_t tiles = (length + rows - 1) / rows;
    const int64_t all = static_cast<int64_t>(blockIdx.x) / tiles;
    const int64_t tile = static_cast<int64_t>(blockIdx.x) - all * tiles;
    row = (last_first ? tiles - 1 - tile : tile) * rows;
    b = all / heads;
    head = all - b * heads;
  }
};

/// Blocks for all of these tiles.
inline dim3 HeadTiles(const AttentionShape& s, int64_t heads, int64_t length, int rows) {
  return dim3(static_cast<unsigned>(s.batch * heads * ((length + rows - 1) / rows)));
}

/// Which keys a tile of `rows` queries from `row` sees, and the warp whose 16 begin at `warp_row`.
struct TileView {
  int begin, end;        ///< the tile's queries that see any
  int64_t key_end;       ///< one past the last key that any of them sees
  int64_t warp_key_end;  ///< the same for this warp's
  int64_t common_end;    ///< keys below it are seen by all of this warp's

  __device__ TileView(const AttentionVisible& see, int64_t row, int rows, int64_t warp_row)
      : begin(Within(see.first - row, rows)), end(Within(see.end - row, rows)) {
    key_end = begin < end ? see.KeyEnd(row + end - 1) : 0;
    const int64_t warp_end =
        warp_row + kFragmentRows < see.end ? warp_row + kFragmentRows : see.end;
    warp_key_end = warp_end > warp_row && warp_end > see.first ? see.KeyEnd(warp_end - 1) : 0;
    const bool all_see = see.first <= warp_row && warp_row + kFragmentRows <= see.end;
    common_end = all_see ? see.KeyEnd(warp_row) : 0;
  }
};

/// Keys that query i sees.
__device__ inline int64_t KeysSeen(const AttentionVisible& see, int64_t i) {
  return i >= see.first && i < see.end ? see.KeyEnd(i) : 0;
}

}  // namespace pando
