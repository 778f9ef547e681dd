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

/// A block's tiles: kWarps warps of kBands bands of rows of its own, against kStream rows at a
/// time, in kStages buffers.
template <int kWarpCount, int kBandCount, int kStreamRows, int kStageCount>
struct BackwardTileOf {
  static constexpr int kWarps = kWarpCount;
  static constexpr int kBands = kBandCount;
  static constexpr int kStream = kStreamRows;
  static constexpr int kStages = kStageCount;
  static constexpr int kWarpRows = kBands * kBandRows;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kRows = kWarps * kWarpRows;
  static_assert(kMostTileRows % kRows == 0 && kMostTileRows % kStream == 0);
};

/// Of blocks that own queries.
template <typename T, int kDim>
struct QueryTile;
template <typename T>
struct QueryTile<T, 64> : BackwardTileOf<4, 2, 32, 2> {};
template <typename T>
struct QueryTile<T, 128> : BackwardTileOf<4, 1, 32, 2> {};
template <typename T>
struct QueryTile<T, 256> : BackwardTileOf<2, 1, 16, 2> {};
template <>
struct QueryTile<float, 64> : BackwardTileOf<4, 1, 32, 1> {};
template <>
struct QueryTile<float, 128> : BackwardTileOf<2, 1, 16, 1> {};
template <>
struct QueryTile<float, 256> : BackwardTileOf<2, 1, 8, 1> {};

/// Of blocks that own keys, which give kColumns elements of their dk and dv.
template <typename T, int kDim>
struct KeyTile : QueryTile<T, kDim> {
  static constexpr int kColumns = kDim == 256 ? 128 : kDim;
};
template <typename T>
struct KeyTile<T, 64> : BackwardTileOf<4, 2, 16, 2> {
  static constexpr int kColumns = 64;
};
template <>
struct KeyTile<float, 64> : QueryTile<float, 64> {
  static constexpr int kColumns = 64;
};
template <typename T>
struct KeyTile<T, 128> : BackwardTileOf<4, 1, 16, 2> {
  static constexpr int kColumns = 128;
};
template <>
struct KeyTile<float, 128> : QueryTile<float, 128> {
  static constexpr int kColumns = 128;
};

template <typename T, int kDim, typename Tile>
constexpr int64_t BackwardSharedBytes() {
  return SharedRows<T, kDim>::Bytes(2 * Tile::kRows + 2 * Tile::kStages * Tile::kStream);
}

/// A statistic of the queries of a tile, where they are rows and where they are columns.
struct RowStatistic {
  float of[2];  ///< of row g and of g + 8
  __device__ float operator()(int /*n*/, int e) const { return of[e / 2]; }
};
struct ColumnStatistic {
  const float* of;  ///< of column 2t on
  __device__ float operator()(int n, int e) const {
    return reinterpret_cast<const Pack<float, 2>*>(of + Wide(8 * n))->v[e % 2];
  }
};

/// From a band's scores and dP to the probabilities after dropout, in `p`, and dS, in `dp`. The
/// band begins at (row, column); where `masked`, sees(n, e) says which elements count.
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
      if (dropout.on()) keep = dropout.template Keep<kOwnsKeys>(row, column + Wide(8 * n));
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
__global__ void __launch_bounds__(QueryTile<T, kDim>::kThreads, 2)
    AttentionQueryGradientKernel(AttentionBackwardArgs args, QueryStatistics statistics,
                                 AttentionScalars scalars) {
  using Tile = QueryTile<T, kDim>;
  using Rows = SharedRows<T, kDim>;
  constexpr int kThreads = Tile::kThreads;
  constexpr int kQueries = Tile::kRows;
  constexpr int kKeys = Tile::kStream;
  constexpr int kBands = Tile::kBands;
  const AttentionShape& s = args.shape;
  const HeadTile at(s.query_heads, s.query_length, kQueries, true);
  const int kv_head = at.head / static_cast<int>(s.query_heads / s.kv_heads);
  const AttentionVisible see(s, at.b);
  const TileDropout dropout(s, scalars.threshold, at.b, at.head);
  const int dim = static_cast<int>(s.head_dim);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int g = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const int warp_row = at.row + Tile::kWarpRows * warp;

  T* const q_tile = SharedMemory<T>();
  T* const dout_tile = q_tile + kQueries * Rows::kStride;
  T* const stream = dout_tile + kQueries * Rows::kStride;
  const int own = warp * Tile::kWarpRows * Rows::kStride;

  const TileView view(see, at.row, kQueries, warp_row, Tile::kWarpRows);
  const auto load = [&](int j0, int stage) {
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

  const int64_t row =
      (static_cast<int64_t>(at.b) * s.query_heads + at.head) * statistics.padded + warp_row + g;
  RowStatistic lse[kBands], delta[kBands];
  int ends[kBands][2];
  PANDO_UNROLL
  for (int r = 0; r < 2 * kBands; ++r) {
    lse[r / 2].of[r % 2] = statistics.lse[row + Wide(8 * r)];
    delta[r / 2].of[r % 2] = statistics.delta[row + Wide(8 * r)];
    ends[r / 2][r % 2] = KeysSeen(see, warp_row + g + 8 * r);
  }
  float dq[kBands][kDim / 8][4] = {};
  int stage = 0;
  for (int j0 = 0; j0 < view.key_end; j0 += kKeys) {
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
      float p[kBands][kKeys / 8][4] = {}, dp[kBands][kKeys / 8][4] = {};
      ScoreProduct<T, kDim, kKeys, kBands>(q_tile + own, k_tile, p);
      ScoreProduct<T, kDim, kKeys, kBands>(dout_tile + own, v_tile, dp);
      const bool masked = j0 + kKeys > view.common_end;
      PANDO_UNROLL
      for (int m = 0; m < kBands; ++m) {
        const auto sees = [&, m](int n, int e) {
          return j0 + 8 * n + 2 * t + e % 2 < ends[m][e / 2];
        };
        DifferentiateTile<false, kDropout, kKeys>(scalars, dropout, warp_row + kBandRows * m, j0,
                                                  masked, lse[m], delta[m], sees, p[m], dp[m]);
      }
      WeightedRows<T, kDim, kKeys, kDim, kBands>(dp, k_tile, 0, dq);
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
  PANDO_UNROLL
  for (int m = 0; m < kBands; ++m) {
    const int band_row = warp_row + kBandRows * m;
    StoreTile<T, kDim, kDim>(dq[m], scales, q_tile + own + kBandRows * m * Rows::kStride,
                             {RowAt<T>(args.dq, at.b, band_row, at.head, dim), args.dq.row_stride,
                              0, Within(s.query_length - band_row, kBandRows), dim, scalars.wide});
  }
}

/// Gradients of a tile of keys and its values, columns [blockIdx.y * kColumns, ...).
template <typename T, int kDim, bool kDropout>
__global__ void __launch_bounds__(KeyTile<T, kDim>::kThreads, 2)
    AttentionKeyGradientKernel(AttentionBackwardArgs args, QueryStatistics statistics,
                               AttentionScalars scalars) {
  using Tile = KeyTile<T, kDim>;
  using Rows = SharedRows<T, kDim>;
  constexpr int kThreads = Tile::kThreads;
  constexpr int kKeys = Tile::kRows;
  constexpr int kQueries = Tile::kStream;
  constexpr int kColumns = Tile::kColumns;
  constexpr int kBands = Tile::kBands;
  const AttentionShape& s = args.shape;
  const HeadTile at(s.kv_heads, s.key_length, kKeys, false);
  const int group = static_cast<int>(s.query_heads / s.kv_heads);
  const AttentionVisible see(s, at.b);
  const int dim = static_cast<int>(s.head_dim);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int g = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const int warp_row = at.row + Tile::kWarpRows * warp;
  const int first_chunk =
      kColumns == kDim ? 0 : static_cast<int>(blockIdx.y) * kColumns / Rows::kPerChunk;

  T* const k_tile = SharedMemory<T>();
  T* const v_tile = k_tile + kKeys * Rows::kStride;
  T* const stream = v_tile + kKeys * Rows::kStride;
  const int own = warp * Tile::kWarpRows * Rows::kStride;

  // Key row is seen by the queries from row - offset on. Of the tile's first key these are taken in
  // whole tiles; then the same for the group's next head.
  const int offset = static_cast<int>(see.offset), end = static_cast<int>(see.end);
  const int keys = Within(see.keys - at.row, kKeys);
  int begin = static_cast<int>(see.first);
  if (see.causal && at.row - offset > begin) begin = at.row - offset;
  begin = begin / kQueries * kQueries;
  const int last_head = keys > 0 && begin < end ? (at.head + 1) * group : 0;

  const auto load = [&](int head, int i0, int stage) {
    T* const to = stream + stage * 2 * kQueries * Rows::kStride;
    const int from = Within(see.first - i0, kQueries), past = Within(end - i0, kQueries);
    LoadTile<T, kDim, kQueries, kThreads>(to, {RowAt<T>(args.q, at.b, i0, head, dim),
                                               args.q.row_stride, from, past, dim, scalars.wide});
    LoadTile<T, kDim, kQueries, kThreads>(to + kQueries * Rows::kStride,
                                          {RowAt<T>(args.dout, at.b, i0, head, dim),
                                           args.dout.row_stride, from, past, dim, scalars.wide});
  };
  LoadTile<T, kDim, kKeys, kThreads>(k_tile, {RowAt<T>(args.k, at.b, at.row, at.head, dim),
                                              args.k.row_stride, 0, keys, dim, scalars.wide});
  LoadTile<T, kDim, kKeys, kThreads>(v_tile, {RowAt<T>(args.v, at.b, at.row, at.head, dim),
                                              args.v.row_stride, 0, keys, dim, scalars.wide});
  int head = at.head * group, i0 = begin;
  if (head < last_head) load(head, i0, 0);
  CommitCopies();

  float dk[kBands][kColumns / 8][4] = {}, dv[kBands][kColumns / 8][4] = {};
  int stage = 0;
  while (head < last_head) {
    const TileDropout dropout(s, scalars.threshold, at.b, head);
    const int64_t row =
        (static_cast<int64_t>(at.b) * s.query_heads + head) * statistics.padded + i0 + Wide(2 * t);
    const ColumnStatistic lse{statistics.lse + row}, delta{statistics.delta + row};
    const int this_i0 = i0;
    i0 += kQueries;
    if (i0 >= end) {
      i0 = begin;
      ++head;
    }
    WaitForCopies<0>();
    __syncthreads();  // this tile is there, and nobody reads the last one any more
    const T* const q_tile = stream + stage * 2 * kQueries * Rows::kStride;
    const T* const dout_tile = q_tile + kQueries * Rows::kStride;
    if constexpr (Tile::kStages == 2) {
      stage ^= 1;
      if (head < last_head) load(head, i0, stage);
      CommitCopies();
    }
    const int diagonal = see.causal ? warp_row - offset - this_i0 : -kKeys;
    if (diagonal < kQueries) {
      float p[kBands][kQueries / 8][4] = {}, dp[kBands][kQueries / 8][4] = {};
      ScoreProduct<T, kDim, kQueries, kBands>(k_tile + own, q_tile, p);
      ScoreProduct<T, kDim, kQueries, kBands>(v_tile + own, dout_tile, dp);
      const bool masked =
          warp_row + Tile::kWarpRows > at.row + keys || diagonal + Tile::kWarpRows > 1;
      PANDO_UNROLL
      for (int m = 0; m < kBands; ++m) {
        const int band = kBandRows * m + g;
        const auto sees = [&, band](int n, int e) {
          const int key = band + e / 2 * 8;
          return 8 * n + 2 * t + e % 2 >= diagonal + key && warp_row + key < at.row + keys;
        };
        DifferentiateTile<true, kDropout, kQueries>(scalars, dropout, warp_row + kBandRows * m,
                                                    this_i0, masked, lse, delta, sees, p[m], dp[m]);
      }
      WeightedRows<T, kDim, kQueries, kColumns, kBands>(p, dout_tile, first_chunk, dv);
      WeightedRows<T, kDim, kQueries, kColumns, kBands>(dp, q_tile, first_chunk, dk);
    }
    if constexpr (Tile::kStages == 1) {
      __syncthreads();
      if (head < last_head) load(head, i0, 0);
      CommitCopies();
    }
  }
  WaitForCopies<0>();
  __syncthreads();  // also where there were no queries
  const int first_column = first_chunk * Rows::kPerChunk;
  const auto scale = static_cast<float>(s.scale);
  const float dk_scales[2] = {scale, scale}, dv_scales[2] = {1, 1};
  PANDO_UNROLL
  for (int m = 0; m < kBands; ++m) {
    const int band_row = warp_row + kBandRows * m;
    T* const staging = k_tile + own + kBandRows * m * Rows::kStride;
    const auto to = [&](const AttentionRows& out) {
      return GlobalRows<T>{RowAt<T>(out, at.b, band_row, at.head, dim) + first_column,
                           out.row_stride,
                           0,
                           Within(s.key_length - band_row, kBandRows),
                           dim - first_column,
                           scalars.wide};
    };
    StoreTile<T, kDim, kColumns>(dk[m], dk_scales, staging, to(args.dk));
    StoreTile<T, kDim, kColumns>(dv[m], dv_scales, staging, to(args.dv));
  }
}

}  // namespace pando
