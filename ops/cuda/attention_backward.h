#pragma once

// Backward of attention by tiles, probabilities recomputed from the log-sum-exps (Dao,
// "FlashAttention-2", arXiv 2307.08691, algorithm 2; equations in ops/cpu/attention_backward.cc).
// Two kernels of one form, so that every sum has one owner and one order: blocks that own a tile of
// queries and walk past the keys, for dq; and blocks that own a tile of keys and walk past the
// queries, for dk and dv. Scores are computed by both, two products of seven; FlashAttention-2
// saves them by adding to dq from many blocks at once, in any order.

#include "ops/cuda/attention_dropout.h"
#include "ops/cuda/attention_tile.h"

namespace pando {

/// A block's tiles: kWarps warps of 16 rows of its own, against kStream rows at a time, in kStages
/// buffers. A block of keys gives kColumns elements of its dk and dv.
template <typename T, int kDim>
struct BackwardTile {
  static constexpr int kWarps = 4;
  static constexpr int kStream = kDim == 64 ? 64 : 32;
  static constexpr int kStages = 2;
  static constexpr int kColumns = kDim;
};
template <typename T>
struct BackwardTile<T, 256> {
  static constexpr int kWarps = 2;
  static constexpr int kStream = 16;
  static constexpr int kStages = 2;
  static constexpr int kColumns = 128;
};
template <>
struct BackwardTile<float, 64> {
  static constexpr int kWarps = 4;
  static constexpr int kStream = 32;
  static constexpr int kStages = 1;
  static constexpr int kColumns = 64;
};
template <>
struct BackwardTile<float, 128> {
  static constexpr int kWarps = 2;
  static constexpr int kStream = 16;
  static constexpr int kStages = 1;
  static constexpr int kColumns = 128;
};
template <>
struct BackwardTile<float, 256> {
  static constexpr int kWarps = 2;
  static constexpr int kStream = 16;
  static constexpr int kStages = 1;
  static constexpr int kColumns = 128;
};

template <typename T, int kDim>
constexpr int64_t BackwardSharedBytes() {
  using Tile = BackwardTile<T, kDim>;
  return SharedRows<T, kDim>::Bytes(2 * Tile::kWarps * kFragmentRows +
                                    2 * Tile::kStages * Tile::kStream);
}

/// A statistic of the queries of a tile, where they are rows and where they are columns.
struct RowStatistic {
  float of[2];  ///< of row g and of g + 8
  __device__ float operator()(int /*n*/, int e) const { return of[e / 2]; }
};
struct ColumnStatistic {
  const float* of;  ///< of column 2t on
  __device__ float operator()(int n, int e) const {
    return reinterpret_cast<const Pack<float, 2>*>(of + 8 * n)->v[e % 2];
  }
};

/// From a warp's scores and dP to the probabilities after dropout, in `p`, and dS, in `dp`. The
/// tile begins at (row, column); where `masked`, sees(n, e) says which elements count.
template <bool kOwnsKeys, bool kDropout, int kStream, typename Statistic, typename Sees>
__device__ inline void DifferentiateTile(const AttentionScalars& scalars,
                                         const TileDropout& dropout, int64_t row, int64_t column,
                                         bool masked, const Statistic& lse, const Statistic& delta,
                                         const Sees& sees, float (&p)[kStream / 8][4],
                                         float (&dp)[kStream / 8][4]) {
  PANDO_UNROLL
  for (int n = 0; n < kStream / 8; ++n) {
    uint32_t keep = 0xFu;
    if constexpr (kDropout) {
      if (dropout.on()) keep = dropout.template Keep<kOwnsKeys>(row, column + 8 * n);
    }
    PANDO_UNROLL
    for (int e = 0; e < 4; ++e) {
      float weight = FastExp2(p[n][e] * scalars.score_scale - lse(n, e));
      if (masked && !sees(n, e)) weight = 0;
      float factor = 1;
      if constexpr (kDropout) factor = (keep >> e & 1u) != 0 ? scalars.kept_scale : 0.0F;
      dp[n][e] = weight * (dp[n][e] * factor - delta(n, e));
      p[n][e] = weight * factor;
    }
  }
}

template <typename T, int kDim, bool kDropout>
__global__ void __launch_bounds__(BackwardTile<T, kDim>::kWarps* kWarpSize)
    AttentionQueryGradientKernel(AttentionBackwardArgs args, QueryStatistics statistics,
                                 AttentionScalars scalars) {
  using Tile = BackwardTile<T, kDim>;
  using Rows = SharedRows<T, kDim>;
  constexpr int kThreads = Tile::kWarps * kWarpSize;
  constexpr int kQueries = Tile::kWarps * kFragmentRows;
  constexpr int kKeys = Tile::kStream;
  const AttentionShape& s = args.shape;
  const HeadTile at(s.query_heads, s.query_length, kQueries, true);
  const int64_t kv_head = at.head / (s.query_heads / s.kv_heads);
  const AttentionVisible see(s, at.b);
  const TileDropout dropout(s, scalars.threshold, at.b, at.head);
  const int dim = static_cast<int>(s.head_dim);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int g = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const int64_t warp_row = at.row + kFragmentRows * warp;

  T* const q_tile = SharedMemory<T>();
  T* const dout_tile = q_tile + kQueries * Rows::kStride;
  T* const stream = dout_tile + kQueries * Rows::kStride;
  const int own = warp * kFragmentRows * Rows::kStride;

  const TileView view(see, at.row, kQueries, warp_row);
  const auto load = [&](int64_t j0, int stage) {
    T* const to = stream + stage * 2 * kKeys * Rows::kStride;
    const int keys = Within(view.key_end - j0, kKeys);
    LoadTile<T, kDim, kKeys, kThreads>(to, {RowAt<T>(args.k, at.b, j0, kv_head, dim),
                                            args.k.row_stride, 0, keys, dim, scalars.wide});
    LoadTile<T, kDim, kKeys, kThreads>(
        to + kKeys * Rows::kStride,
        {RowAt<T>(args.v, at.b, j0, kv_head, dim), args.v.row_stride, 0, keys, dim, scalars.wide});
  };
  LoadTile<T, kDim, kQueries, kThreads>(
      q_tile, {RowAt<T>(args.q, at.b, at.row, at.head, dim), args.q.row_stride, view.begin,
               view.end, dim, scalars.wide});
  LoadTile<T, kDim, kQueries, kThreads>(
      dout_tile, {RowAt<T>(args.dout, at.b, at.row, at.head, dim), args.dout.row_stride, view.begin,
                  view.end, dim, scalars.wide});
  if (view.key_end > 0) load(0, 0);
  CommitCopies();

  const int64_t row = (at.b * s.query_heads + at.head) * statistics.padded + warp_row + g;
  const RowStatistic lse{{statistics.lse[row], statistics.lse[row + 8]}};
  const RowStatistic delta{{statistics.delta[row], statistics.delta[row + 8]}};
  const int64_t ends[2] = {KeysSeen(see, warp_row + g), KeysSeen(see, warp_row + g + 8)};
  float dq[kDim / 8][4] = {};
  int stage = 0;
  for (int64_t j0 = 0; j0 < view.key_end; j0 += kKeys) {
    WaitForCopies<0>();
    __syncthreads();  // this tile is there, and nobody reads the last one any more
    const T* const k_tile = stream + stage * 2 * kKeys * Rows::kStride;
    const T* const v_tile = k_tile + kKeys * Rows::kStride;
    if constexpr (Tile::kStages == 2) {
      stage ^= 1;
      if (j0 + kKeys < view.key_end) load(j0 + kKeys, stage);
      CommitCopies();
    }
    if (j0 < view.warp_key_end) {
      float p[kKeys / 8][4] = {}, dp[kKeys / 8][4] = {};
      ScoreProduct<T, kDim, kKeys>(q_tile + own, k_tile, p);
      ScoreProduct<T, kDim, kKeys>(dout_tile + own, v_tile, dp);
      const int seen[2] = {Within(ends[0] - j0, kKeys), Within(ends[1] - j0, kKeys)};
      DifferentiateTile<false, kDropout, kKeys>(
          scalars, dropout, warp_row, j0, j0 + kKeys > view.common_end, lse, delta,
          [&](int n, int e) { return 8 * n + 2 * t + e % 2 < seen[e / 2]; }, p, dp);
      WeightedRows<T, kDim, kKeys, kDim>(dp, k_tile, 0, dq);
    }
    if constexpr (Tile::kStages == 1) {
      __syncthreads();
      if (j0 + kKeys < view.key_end) load(j0 + kKeys, 0);
      CommitCopies();
    }
  }
  WaitForCopies<0>();
  __syncthreads();  // also where there were no keys
  const auto scale = static_cast<float>(s.scale);
  const float scales[2] = {scale, scale};
  StoreTile<T, kDim, kDim>(dq, scales, q_tile + own,
                           {RowAt<T>(args.dq, at.b, warp_row, at.head, dim), args.dq.row_stride, 0,
                            Within(s.query_length - warp_row, kFragmentRows), dim, scalars.wide});
}

/// Gradients of a tile of keys and its values, columns [blockIdx.y * kColumns, ...).
template <typename T, int kDim, bool kDropout>
__global__ void __launch_bounds__(BackwardTile<T, kDim>::kWarps* kWarpSize)
    AttentionKeyGradientKernel(AttentionBackwardArgs args, QueryStatistics statistics,
                               AttentionScalars scalars) {
  using Tile = BackwardTile<T, kDim>;
  using Rows = SharedRows<T, kDim>;
  constexpr int kThreads = Tile::kWarps * kWarpSize;
  constexpr int kKeys = Tile::kWarps * kFragmentRows;
  constexpr int kQueries = Tile::kStream;
  constexpr int kColumns = Tile::kColumns;
  const AttentionShape& s = args.shape;
  const HeadTile at(s.kv_heads, s.key_length, kKeys, false);
  const int64_t group = s.query_heads / s.kv_heads;
  const AttentionVisible see(s, at.b);
  const int dim = static_cast<int>(s.head_dim);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int g = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const int64_t warp_row = at.row + kFragmentRows * warp;
  const int first_column = static_cast<int>(blockIdx.y) * kColumns;

  T* const k_tile = SharedMemory<T>();
  T* const v_tile = k_tile + kKeys * Rows::kStride;
  T* const stream = v_tile + kKeys * Rows::kStride;
  const int own = warp * kFragmentRows * Rows::kStride;

  // Queries that see the tile's first key, in tiles; then the same for the group's next head.
  int64_t begin = see.first;
  if (see.causal && at.row - see.offset > begin) begin = at.row - see.offset;
  begin = begin / kQueries * kQueries;
  const bool seen = at.row < see.keys && begin < see.end;
  const int64_t tiles = seen ? (see.end - begin + kQueries - 1) / kQueries : 0;

  const auto load = [&](int64_t head, int64_t i0, int stage) {
    T* const to = stream + stage * 2 * kQueries * Rows::kStride;
    const int first = Within(see.first - i0, kQueries), last = Within(see.end - i0, kQueries);
    LoadTile<T, kDim, kQueries, kThreads>(to, {RowAt<T>(args.q, at.b, i0, head, dim),
                                               args.q.row_stride, first, last, dim, scalars.wide});
    LoadTile<T, kDim, kQueries, kThreads>(to + kQueries * Rows::kStride,
                                          {RowAt<T>(args.dout, at.b, i0, head, dim),
                                           args.dout.row_stride, first, last, dim, scalars.wide});
  };
  const int keys = Within(see.keys - at.row, kKeys);
  LoadTile<T, kDim, kKeys, kThreads>(k_tile, {RowAt<T>(args.k, at.b, at.row, at.head, dim),
                                              args.k.row_stride, 0, keys, dim, scalars.wide});
  LoadTile<T, kDim, kKeys, kThreads>(v_tile, {RowAt<T>(args.v, at.b, at.row, at.head, dim),
                                              args.v.row_stride, 0, keys, dim, scalars.wide});
  if (tiles > 0) load(at.head * group, begin, 0);
  CommitCopies();

  float dk[kColumns / 8][4] = {}, dv[kColumns / 8][4] = {};
  int stage = 0;
  int64_t head = at.head * group, i0 = begin;
  for (int64_t step = 0; step < tiles * group; ++step) {
    int64_t next_head = head, next_i0 = i0 + kQueries;
    if (next_i0 >= see.end) {
      next_i0 = begin;
      ++next_head;
    }
    WaitForCopies<0>();
    __syncthreads();  // this tile is there, and nobody reads the last one any more
    const T* const q_tile = stream + stage * 2 * kQueries * Rows::kStride;
    const T* const dout_tile = q_tile + kQueries * Rows::kStride;
    if constexpr (Tile::kStages == 2) {
      stage ^= 1;
      if (step + 1 < tiles * group) load(next_head, next_i0, stage);
      CommitCopies();
    }
    // The key of row g is seen by queries from diagonal + g on.
    const int64_t diagonal = warp_row - see.offset - i0;
    if (!see.causal || diagonal < kQueries) {
      float p[kQueries / 8][4] = {}, dp[kQueries / 8][4] = {};
      ScoreProduct<T, kDim, kQueries>(k_tile + own, q_tile, p);
      ScoreProduct<T, kDim, kQueries>(v_tile + own, dout_tile, dp);
      const bool masked =
          warp_row + kFragmentRows > see.keys || (see.causal && diagonal + kFragmentRows - 1 > 0);
      // Of the keys of rows g and g + 8, the first query in this tile that sees them.
      int from[2];
      for (int r = 0; r < 2; ++r) {
        const bool counts = warp_row + g + 8 * r < see.keys;
        from[r] = !counts ? kQueries : (see.causal ? Within(diagonal + g + 8 * r, kQueries) : 0);
      }
      const int64_t row = (at.b * s.query_heads + head) * statistics.padded + i0 + 2 * t;
      const ColumnStatistic lse{statistics.lse + row}, delta{statistics.delta + row};
      const TileDropout dropout(s, scalars.threshold, at.b, head);
      DifferentiateTile<true, kDropout, kQueries>(
          scalars, dropout, warp_row, i0, masked, lse, delta,
          [&](int n, int e) { return 8 * n + 2 * t + e % 2 >= from[e / 2]; }, p, dp);
      WeightedRows<T, kDim, kQueries, kColumns>(p, dout_tile, first_column / Rows::kPerChunk, dv);
      WeightedRows<T, kDim, kQueries, kColumns>(dp, q_tile, first_column / Rows::kPerChunk, dk);
    }
    if constexpr (Tile::kStages == 1) {
      __syncthreads();
      if (step + 1 < tiles * group) load(next_head, next_i0, 0);
      CommitCopies();
    }
    head = next_head;
    i0 = next_i0;
  }
  WaitForCopies<0>();
  __syncthreads();  // also where there were no queries
  const int rows = Within(s.key_length - warp_row, kFragmentRows);
  const auto scale = static_cast<float>(s.scale);
  const float dk_scales[2] = {scale, scale}, dv_scales[2] = {1, 1};
  const auto to = [&](const AttentionRows& out) {
    return GlobalRows<T>{RowAt<T>(out, at.b, warp_row, at.head, dim) + first_column,
                         out.row_stride,
                         0,
                         rows,
                         dim - first_column,
                         scalars.wide};
  };
  StoreTile<T, kDim, kColumns>(dk, dk_scales, k_tile + own, to(args.dk));
  StoreTile<T, kDim, kColumns>(dv, dv_scales, v_tile + own, to(args.dv));
}

}  // namespace pando
