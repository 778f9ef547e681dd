#pragma once

// Forward of attention by tiles (Dao, "FlashAttention-2", arXiv 2307.08691): a block owns the
// queries of a tile, keeps their running maxima, sums and outputs in registers, and walks past the
// keys. Keys arrive while the last values are weighted, values while scores are computed.

#include "ops/cuda/attention_dropout.h"
#include "ops/cuda/attention_tile.h"
#include "ops/math.h"

namespace pando {

/// A block's tiles: kWarps warps of kBands bands of queries, against kKeys keys at a time.
template <int kWarpCount, int kBandCount, int kKeyCount>
struct ForwardTileOf {
  static constexpr int kWarps = kWarpCount;
  static constexpr int kBands = kBandCount;
  static constexpr int kKeys = kKeyCount;
  static constexpr int kWarpRows = kBands * kBandRows;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kQueries = kWarps * kWarpRows;
};
template <typename T, int kDim, bool kDropout>
struct ForwardTile;
template <typename T, bool kDropout>
struct ForwardTile<T, 64, kDropout> : ForwardTileOf<4, 2, 32> {};
template <typename T>
struct ForwardTile<T, 128, false> : ForwardTileOf<4, 2, 32> {};
template <typename T>
struct ForwardTile<T, 128, true> : ForwardTileOf<4, 1, 64> {};
template <typename T>
struct ForwardTile<T, 256, true> : ForwardTileOf<4, 1, 16> {};
template <>
struct ForwardTile<float, 64, true> : ForwardTileOf<4, 1, 32> {};
template <>
struct ForwardTile<float, 128, true> : ForwardTileOf<2, 1, 32> {};
template <>
struct ForwardTile<float, 256, true> : ForwardTileOf<2, 1, 8> {};

/// How far, in units of ln 2, scores may pass the base that powers are taken over before sums are
/// rescaled: they are then at most 2^8 times as large, which loses nothing, and rescaling is rare.
inline constexpr float kSlack = 8;

/// One band's step of the running softmax: scores become 2^(score - base), 0 for keys from ends[]
/// (of row g and of g + 8) on. Scores are in units of ln 2.
template <int kKeys, int kDim>
__device__ inline void SoftmaxStep(bool masked, const int (&ends)[2], float scale,
                                   float (&scores)[kKeys / 8][4], float (&base)[2], float (&sum)[2],
                                   float (&out)[kDim / 8][4]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  PANDO_UNROLL
  for (int r = 0; r < 2; ++r) {
    float best = -__builtin_inff();
    PANDO_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      PANDO_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& score = scores[n][2 * r + i];
        score *= scale;
        if (masked && 8 * n + 2 * t + i >= ends[r]) score = -__builtin_inff();
        best = fmaxf(best, score);
      }
    }
    best = fmaxf(best, __shfl_xor_sync(kFullMask, best, 1));
    best = fmaxf(best, __shfl_xor_sync(kFullMask, best, 2));
    if (best > base[r] + kSlack) {
      const float decay = FastExp2(base[r] - best);
      base[r] = best;
      sum[r] *= decay;
      PANDO_UNROLL
      for (int n = 0; n < kDim / 8; ++n) {
        out[n][2 * r] *= decay;
        out[n][2 * r + 1] *= decay;
      }
    }
    PANDO_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      PANDO_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& score = scores[n][2 * r + i];
        score = FastExp2(score - base[r]);
        sum[r] += score;
      }
    }
  }
}

/// Drops of a band's scores what is to be dropped; what is kept is scaled at the end.
template <int kKeys>
__device__ inline void DropScores(const TileDropout& dropout, int64_t row, int64_t j0,
                                  float (&scores)[kKeys / 8][4]) {
  PANDO_UNROLL
  for (int n = 0; n < kKeys / 8; ++n) {
    const uint32_t keep = dropout.template Keep<false>(row, j0 + Wide(8 * n));
    PANDO_UNROLL
    for (int e = 0; e < 4; ++e) scores[n][e] = (keep >> e & 1u) != 0 ? scores[n][e] : 0.0F;
  }
}

template <typename T, int kDim, bool kDropout>
__global__ void __launch_bounds__(ForwardTile<T, kDim, kDropout>::kThreads,
                                  kDim == 64 && !kDropout ? 3 : 2)
    AttentionForwardKernel(AttentionForwardArgs args, AttentionScalars scalars) {
  using Tile = ForwardTile<T, kDim, kDropout>;
  using Rows = SharedRows<T, kDim>;
  constexpr int kThreads = Tile::kThreads;
  constexpr int kQueries = Tile::kQueries;
  constexpr int kKeys = Tile::kKeys;
  constexpr int kBands = Tile::kBands;
  const AttentionShape& s = args.shape;
  const HeadTile at(s.query_heads, s.query_length, kQueries, true);
  const int kv_head = at.head / static_cast<int>(s.query_heads / s.kv_heads);
  const AttentionVisible see(s, at.b);
  const TileDropout dropout(s, scalars.threshold, at.b, at.head);
  const int dim = static_cast<int>(s.head_dim);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int g = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const int warp_row = at.row + Tile::kWarpRows * warp;

  T* const q_tile = SharedMemory<T>();
  T* const k_tile = q_tile + kQueries * Rows::kStride;
  T* const v_tile = k_tile + kKeys * Rows::kStride;
  T* const my_q = q_tile + warp * Tile::kWarpRows * Rows::kStride;

  const TileView view(see, at.row, kQueries, warp_row, Tile::kWarpRows);
  int row_ends[kBands][2];
  PANDO_UNROLL
  for (int r = 0; r < 2 * kBands; ++r) {
    row_ends[r / 2][r % 2] = KeysSeen(see, warp_row + g + 8 * r);
  }

  const auto keys_from = [&](const ConstAttentionRows& rows, int j0) {
    return GlobalRows<const T>{RowAt<T>(rows, at.b, j0, kv_head, s.head_dim),
                               rows.row_stride,
                               0,
                               Within(view.key_end - j0, kKeys),
                               dim,
                               scalars.wide};
  };
  LoadTile<T, kDim, kQueries, kThreads>(
      q_tile, {RowAt<T>(args.q, at.b, at.row, at.head, s.head_dim), args.q.row_stride, view.begin,
               view.end, dim, scalars.wide});
  if (view.key_end > 0) LoadTile<T, kDim, kKeys, kThreads>(k_tile, keys_from(args.k, 0));
  CommitCopies();

  float out[kBands][kDim / 8][4] = {};
  // The least finite base: rows that have seen nothing must not compute infinity - infinity.
  constexpr float kNoBase = -0x1.fffffep+127F;
  float base[kBands][2], sum[kBands][2] = {};
  PANDO_UNROLL
  for (int r = 0; r < 2 * kBands; ++r) base[r / 2][r % 2] = kNoBase;
  for (int j0 = 0; j0 < view.key_end; j0 += kKeys) {
    float scores[kBands][kKeys / 8][4] = {};
    WaitForCopies<0>();
    __syncthreads();  // the keys are there, and nobody reads the last values any more
    LoadTile<T, kDim, kKeys, kThreads>(v_tile, keys_from(args.v, j0));
    CommitCopies();
    const bool works = j0 < view.warp_key_end;
    if (works) {
      ScoreProduct<T, kDim, kKeys, kBands>(my_q, k_tile, scores);
      const bool masked = j0 + kKeys > view.common_end;
      PANDO_UNROLL
      for (int m = 0; m < kBands; ++m) {
        const int ends[2] = {row_ends[m][0] - j0, row_ends[m][1] - j0};
        SoftmaxStep<kKeys, kDim>(masked, ends, scalars.score_scale, scores[m], base[m], sum[m],
                                 out[m]);
        if constexpr (kDropout) {
          if (dropout.on()) DropScores<kKeys>(dropout, warp_row + kBandRows * m, j0, scores[m]);
        }
      }
    }
    WaitForCopies<0>();
    __syncthreads();  // the values are there, and nobody reads these keys any more
    if (j0 + kKeys < view.key_end) {
      LoadTile<T, kDim, kKeys, kThreads>(k_tile, keys_from(args.k, j0 + kKeys));
    }
    CommitCopies();
    if (works) WeightedRows<T, kDim, kKeys, kDim, kBands>(scores, v_tile, 0, out);
  }
  WaitForCopies<0>();
  __syncthreads();  // the queries are there even where there are no keys: their room is used below

  const float kept = kDropout ? scalars.kept_scale : 1.0F;
  PANDO_UNROLL
  for (int m = 0; m < kBands; ++m) {
    float scales[2];
    const int band_row = warp_row + kBandRows * m;
    PANDO_UNROLL
    for (int r = 0; r < 2; ++r) {
      float total = sum[m][r];
      total += __shfl_xor_sync(kFullMask, total, 1);
      total += __shfl_xor_sync(kFullMask, total, 2);
      const bool empty = row_ends[m][r] == 0;
      scales[r] = empty ? 0.0F : kept / total;
      const int i = band_row + g + 8 * r;
      if (args.lse != nullptr && threadIdx.x % 4 == 0 && i < s.query_length) {
        static_cast<float*>(args.lse)[(at.b * s.query_heads + at.head) * s.query_length + i] =
            empty ? __builtin_inff() : base[m][r] * kLn2 + Log(total);
      }
    }
    StoreTile<T, kDim, kDim>(
        out[m], scales, my_q + kBandRows * m * Rows::kStride,
        {RowAt<T>(args.out, at.b, band_row, at.head, s.head_dim), args.out.row_stride, 0,
         Within(s.query_length - band_row, kBandRows), dim, scalars.wide});
  }
}

}  // namespace pando
