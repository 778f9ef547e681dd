#pragma once

// Forward of attention by tiles (Dao, "FlashAttention-2", arXiv 2307.08691): a block owns the
// queries of a tile, keeps their running maxima, sums and outputs in registers, and walks past the
// keys. Keys arrive while the last values are weighted, values while scores are computed.

#include "ops/cuda/attention_dropout.h"
#include "ops/cuda/attention_tile.h"
#include "ops/math.h"

namespace pando {

/// A block's tiles: kWarps warps of 16 queries each, against kKeys keys at a time.
template <typename T, int kDim>
struct ForwardTile {
  static constexpr int kWarps = 4;
  static constexpr int kKeys = 64;
};
template <typename T>
struct ForwardTile<T, 256> {
  static constexpr int kWarps = 4;
  static constexpr int kKeys = 32;
};
template <>
struct ForwardTile<float, 128> {
  static constexpr int kWarps = 2;
  static constexpr int kKeys = 32;
};
template <>
struct ForwardTile<float, 256> {
  static constexpr int kWarps = 2;
  static constexpr int kKeys = 16;
};

/// One warp's step of the running softmax: scores become 2^(score - maximum), 0 for keys from
/// ends[] (of row g and of g + 8) on; earlier sums shrink. Scores are in units of ln 2.
template <int kKeys, int kDim>
__device__ inline void SoftmaxStep(bool masked, const int (&ends)[2], float scale,
                                   float (&scores)[kKeys / 8][4], float (&maximum)[2],
                                   float (&sum)[2], float (&out)[kDim / 8][4]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  PANDO_UNROLL
  for (int r = 0; r < 2; ++r) {
    float best = maximum[r];
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
    // A row that has seen nothing yet must not compute infinity - infinity.
    const float base = best == -__builtin_inff() ? 0.0F : best;
    const float decay = FastExp2(maximum[r] - base);
    float added = 0;
    PANDO_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      PANDO_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& score = scores[n][2 * r + i];
        score = FastExp2(score - base);
        added += score;
      }
    }
    maximum[r] = best;
    sum[r] = sum[r] * decay + added;
    PANDO_UNROLL
    for (int n = 0; n < kDim / 8; ++n) {
      out[n][2 * r] *= decay;
      out[n][2 * r + 1] *= decay;
    }
  }
}

template <typename T, int kDim, bool kDropout>
__global__ void __launch_bounds__(ForwardTile<T, kDim>::kWarps* kWarpSize)
    AttentionForwardKernel(AttentionForwardArgs args, AttentionScalars scalars) {
  using Tile = ForwardTile<T, kDim>;
  using Rows = SharedRows<T, kDim>;
  constexpr int kThreads = Tile::kWarps * kWarpSize;
  constexpr int kQueries = Tile::kWarps * kFragmentRows;
  constexpr int kKeys = Tile::kKeys;
  const AttentionShape& s = args.shape;
  const HeadTile at(s.query_heads, s.query_length, kQueries, true);
  const int64_t kv_head = at.head / (s.query_heads / s.kv_heads);
  const AttentionVisible see(s, at.b);
  const TileDropout dropout(s, scalars.threshold, at.b, at.head);
  const int dim = static_cast<int>(s.head_dim);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int g = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const int64_t warp_row = at.row + kFragmentRows * warp;

  T* const q_tile = SharedMemory<T>();
  T* const k_tile = q_tile + kQueries * Rows::kStride;
  T* const v_tile = k_tile + kKeys * Rows::kStride;
  T* const my_q = q_tile + warp * kFragmentRows * Rows::kStride;

  const TileView view(see, at.row, kQueries, warp_row);
  const int64_t row_ends[2] = {KeysSeen(see, warp_row + g), KeysSeen(see, warp_row + g + 8)};

  const auto keys_from = [&](const ConstAttentionRows& rows, int64_t j0) {
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

  float out[kDim / 8][4] = {};
  float maximum[2] = {-__builtin_inff(), -__builtin_inff()};
  float sum[2] = {};
  for (int64_t j0 = 0; j0 < view.key_end; j0 += kKeys) {
    float scores[kKeys / 8][4] = {};
    WaitForCopies<0>();
    __syncthreads();  // the keys are there, and nobody reads the last values any more
    LoadTile<T, kDim, kKeys, kThreads>(v_tile, keys_from(args.v, j0));
    CommitCopies();
    const bool works = j0 < view.warp_key_end;
    if (works) {
      ScoreProduct<T, kDim, kKeys>(my_q, k_tile, scores);
      const int ends[2] = {Within(row_ends[0] - j0, kKeys), Within(row_ends[1] - j0, kKeys)};
      SoftmaxStep<kKeys, kDim>(j0 + kKeys > view.common_end, ends, scalars.score_scale, scores,
                               maximum, sum, out);
      if constexpr (kDropout) {
        if (dropout.on()) {
          PANDO_UNROLL
          for (int n = 0; n < kKeys / 8; ++n) {
            const uint32_t keep = dropout.template Keep<false>(warp_row, j0 + 8 * n);
            PANDO_UNROLL
            for (int e = 0; e < 4; ++e) scores[n][e] = (keep >> e & 1u) != 0 ? scores[n][e] : 0.0F;
          }
        }
      }
    }
    WaitForCopies<0>();
    __syncthreads();  // the values are there, and nobody reads these keys any more
    if (j0 + kKeys < view.key_end) {
      LoadTile<T, kDim, kKeys, kThreads>(k_tile, keys_from(args.k, j0 + kKeys));
    }
    CommitCopies();
    if (works) WeightedRows<T, kDim, kKeys, kDim>(scores, v_tile, 0, out);
  }
  WaitForCopies<0>();
  __syncthreads();  // the queries are there even where there are no keys: their room is used below

  float scales[2];
  const float kept = kDropout ? scalars.kept_scale : 1.0F;
  PANDO_UNROLL
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(kFullMask, sum[r], 1);
    sum[r] += __shfl_xor_sync(kFullMask, sum[r], 2);
    const bool empty = row_ends[r] == 0;
    scales[r] = empty ? 0.0F : kept / sum[r];
    const int64_t i = warp_row + g + 8 * r;
    if (args.lse != nullptr && threadIdx.x % 4 == 0 && i < s.query_length) {
      static_cast<float*>(args.lse)[(at.b * s.query_heads + at.head) * s.query_length + i] =
          empty ? __builtin_inff() : maximum[r] * kLn2 + Log(sum[r]);
    }
  }
  StoreTile<T, kDim, kDim>(
      out, scales, my_q,
      {RowAt<T>(args.out, at.b, warp_row, at.head, s.head_dim), args.out.row_stride, 0,
       Within(s.query_length - warp_row, kFragmentRows), dim, scalars.wide});
}

}  // namespace pando
