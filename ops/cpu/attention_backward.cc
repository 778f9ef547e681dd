// Backward of attention on the CPU, probabilities recomputed from the log-sum-exps (Dao et al.,
// arXiv 2205.14135, algorithm 4). With P the probabilities, F dropout's factors (0 or 1 / (1 - p)):
//
//     dV = (P F)^T dO       dP = F (dO V^T)       dS = P (dP - delta),  delta = rowsum(dO O)
//     dQ = scale dS K       dK = scale dS^T Q
//
// One task owns a key-value head of a sample: it takes the queries of its group of heads, tile by
// tile, past all keys, and nobody else adds to its dK and dV.

#include "ops/cpu/attention_backward.h"

#include "engine/cpu/dispatch.h"
#include "ops/cpu/attention_tile.h"

namespace pando::PANDO_ISA {
namespace {

/// Below, "rows" lie [query or key][d padded] and "columns" [d padded][kQueries].
template <typename C>
struct Scratch {
  C *k, *v, *dk, *dv;  ///< rows of all keys
  C *q, *dout;         ///< rows of a tile of queries; q times scale / ln 2
  C *q_columns, *dout_columns, *dq_columns;
  C *lse, *delta;  ///< [kQueries]; lse in units of ln 2
  C *p, *ds;       ///< [kKeys][kQueries]
  C* factors;      ///< dropout's: [kKeys + 4][kQueries]
  int64_t bytes;

  Scratch(void* base, int64_t keys, int64_t padded) {
    Carver carve(base);
    k = carve.Take<C>(keys * padded);
    v = carve.Take<C>(keys * padded);
    dk = carve.Take<C>(keys * padded);
    dv = carve.Take<C>(keys * padded);
    q = carve.Take<C>(kQueries * padded);
    dout = carve.Take<C>(kQueries * padded);
    q_columns = carve.Take<C>(kQueries * padded);
    dout_columns = carve.Take<C>(kQueries * padded);
    dq_columns = carve.Take<C>(kQueries * padded);
    lse = carve.Take<C>(kQueries);
    delta = carve.Take<C>(kQueries);
    p = carve.Take<C>(kKeys * kQueries);
    ds = carve.Take<C>(kKeys * kQueries);
    factors = carve.Take<C>((kKeys + 4) * kQueries);
    bytes = carve.used();
  }
};

/// delta[i] = sum over d of dout[i][d] out[i][d], both as padded rows.
template <typename C>
void RowDots(const C* dout, const C* out, int64_t rows, int64_t padded, C* delta) {
  for (int64_t i = 0; i < rows; ++i) {
    Vector<C> sum = {};
    for (int64_t e = 0; e < padded; e += kLanes<C>) {
      sum += Load(dout + i * padded + e) * Load(out + i * padded + e);
    }
    C total = 0;
    for (int64_t l = 0; l < kLanes<C>; ++l) total += sum[l];
    delta[i] = total;
  }
}

/// Scores to probabilities, dP to dS, in place; no dropout.
template <typename C>
void Differentiate(int64_t keys, int64_t lanes, const C* __restrict lse, const C* __restrict delta,
                   C* __restrict p, C* __restrict ds) {
  for (int64_t j = 0; j < keys; ++j) {
    C* __restrict p_row = p + j * kQueries;
    C* __restrict ds_row = ds + j * kQueries;
    for (int64_t i = 0; i < lanes; ++i) {
      const C e = Exp2OfNegative(p_row[i] - lse[i]);
      p_row[i] = e;
      ds_row[i] = e * (ds_row[i] - delta[i]);
    }
  }
}

/// As Differentiate, with dropout; p becomes P F.
template <typename C>
void DifferentiateDropped(int64_t keys, int64_t lanes, const C* __restrict lse,
                          const C* __restrict delta, const C* __restrict factors, C* __restrict p,
                          C* __restrict ds) {
  for (int64_t j = 0; j < keys; ++j) {
    C* __restrict p_row = p + j * kQueries;
    C* __restrict ds_row = ds + j * kQueries;
    const C* __restrict f_row = factors + j * kQueries;
    for (int64_t i = 0; i < lanes; ++i) {
      const C e = Exp2OfNegative(p_row[i] - lse[i]);
      p_row[i] = e * f_row[i];
      ds_row[i] = e * (ds_row[i] * f_row[i] - delta[i]);
    }
  }
}

/// One tile of keys against one tile of queries.
template <typename C>
void BackwardTile(const Visible& see, const Dropout<C>& dropout, const Scratch<C>& s, int64_t i0,
                  int64_t queries, int64_t j0, int64_t keys, int64_t d) {
  const int64_t padded = RoundUp(d, kLanes<C>);
  const C* k = s.k + j0 * padded;
  const C* v = s.v + j0 * padded;
  ForEachStrip<C>(see, i0, queries, j0, keys, [&](const Strip& strip) {
    const int64_t lane = strip.lane;
    C* p = s.p + lane;
    C* ds = s.ds + lane;
    TileProduct<Left::kByRow>(Tile<C>{strip.keys, strip.lanes, d, k, padded, s.q_columns + lane,
                                      kQueries, p, kQueries, Into::kOverwrite, nullptr});
    if (strip.masked) MaskStrip(see, i0, j0, strip, p);
    TileProduct<Left::kByRow>(Tile<C>{strip.keys, strip.lanes, d, v, padded, s.dout_columns + lane,
                                      kQueries, ds, kQueries, Into::kOverwrite, nullptr});
    if (dropout.on()) {
      dropout.Draw(i0 + lane, j0, strip.lanes, strip.keys, s.factors + lane);
      DifferentiateDropped(strip.keys, strip.lanes, s.lse + lane, s.delta + lane, s.factors + lane,
                           p, ds);
    } else {
      Differentiate(strip.keys, strip.lanes, s.lse + lane, s.delta + lane, p, ds);
    }
    TileProduct<Left::kByRow>(Tile<C>{strip.keys, padded, strip.live, p, kQueries,
                                      s.dout + lane * padded, padded, s.dv + j0 * padded, padded,
                                      Into::kAdd, nullptr});
    TileProduct<Left::kByRow>(Tile<C>{strip.keys, padded, strip.live, ds, kQueries,
                                      s.q + lane * padded, padded, s.dk + j0 * padded, padded,
                                      Into::kAdd, nullptr});
    TileProduct<Left::kByColumn>(Tile<C>{d, strip.lanes, strip.keys, k, padded, ds, kQueries,
                                         s.dq_columns + lane, kQueries,
                                         j0 == 0 ? Into::kOverwrite : Into::kAdd, nullptr});
  });
}

/// Loads what backward needs of a tile of queries.
template <typename T>
void LoadQueries(const AttentionBackwardArgs& args, const Scratch<ComputeType<T>>& s, int64_t b,
                 int64_t head, int64_t i0, int64_t queries) {
  using C = ComputeType<T>;
  const AttentionShape& shape = args.shape;
  const int64_t d = shape.head_dim;
  const int64_t padded = RoundUp(d, kLanes<C>);
  const int64_t lanes = RoundUp(queries, kLanes<C>);
  LoadRows<T>(RowAt<T>(args.dout, b, i0, head, d), args.dout.row_stride, queries, lanes, d, C{1},
              s.dout, padded);
  Transpose(lanes, padded, s.dout, padded, s.dout_columns, kQueries);
  // q's place serves for out first.
  LoadRows<T>(RowAt<T>(args.out, b, i0, head, d), args.out.row_stride, queries, lanes, d, C{1}, s.q,
              padded);
  RowDots(s.dout, s.q, lanes, padded, s.delta);
  LoadRows<T>(RowAt<T>(args.q, b, i0, head, d), args.q.row_stride, queries, lanes, d,
              static_cast<C>(shape.scale * kLog2E), s.q, padded);
  Transpose(lanes, padded, s.q, padded, s.q_columns, kQueries);
  const C* lse =
      static_cast<const C*>(args.lse) + (b * shape.query_heads + head) * shape.query_length + i0;
  for (int64_t i = 0; i < lanes; ++i) s.lse[i] = i < queries ? lse[i] * static_cast<C>(kLog2E) : 0;
}

/// All queries of one head; adds to the scratch's dk and dv.
template <typename T>
void BackwardHead(const AttentionBackwardArgs& args, const Visible& see,
                  const Scratch<ComputeType<T>>& s, int64_t b, int64_t head) {
  using C = ComputeType<T>;
  const AttentionShape& shape = args.shape;
  const int64_t d = shape.head_dim;
  const int64_t padded = RoundUp(d, kLanes<C>);
  const Dropout<C> dropout(shape, b, head);
  ZeroRows<T>(args.dq, b, 0, see.first, head, d);
  ZeroRows<T>(args.dq, b, see.end, shape.query_length, head, d);
  for (int64_t i0 = see.first; i0 < see.end; i0 += kQueries) {
    const int64_t queries = Min(kQueries, see.end - i0);
    LoadQueries<T>(args, s, b, head, i0, queries);
    const int64_t key_end = see.KeyEnd(i0 + queries - 1);
    for (int64_t j0 = 0; j0 < key_end; j0 += kKeys) {
      BackwardTile<C>(see, dropout, s, i0, queries, j0, Min(kKeys, key_end - j0), d);
    }
    // q's place is free again.
    Transpose(padded, RoundUp(queries, kLanes<C>), s.dq_columns, kQueries, s.q, padded);
    StoreRows<T>(s.q, padded, queries, d, static_cast<C>(shape.scale),
                 RowAt<T>(args.dq, b, i0, head, d), args.dq.row_stride);
  }
}

template <typename T>
void BackwardKvHead(const AttentionBackwardArgs& args, const Scratch<ComputeType<T>>& s, int64_t b,
                    int64_t kv_head) {
  using C = ComputeType<T>;
  const AttentionShape& shape = args.shape;
  const int64_t d = shape.head_dim;
  const int64_t padded = RoundUp(d, kLanes<C>);
  const int64_t group = shape.query_heads / shape.kv_heads;
  const Visible see(shape, b);
  LoadRows<T>(RowAt<T>(args.k, b, 0, kv_head, d), args.k.row_stride, see.keys, see.keys, d, C{1},
              s.k, padded);
  LoadRows<T>(RowAt<T>(args.v, b, 0, kv_head, d), args.v.row_stride, see.keys, see.keys, d, C{1},
              s.v, padded);
  for (int64_t i = 0; i < see.keys * padded; ++i) s.dk[i] = s.dv[i] = 0;
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    BackwardHead<T>(args, see, s, b, h);
  }
  // q carried the factor of scores in units of ln 2.
  StoreRows<T>(s.dk, padded, see.keys, d, static_cast<C>(kLn2), RowAt<T>(args.dk, b, 0, kv_head, d),
               args.dk.row_stride);
  StoreRows<T>(s.dv, padded, see.keys, d, C{1}, RowAt<T>(args.dv, b, 0, kv_head, d),
               args.dv.row_stride);
  ZeroRows<T>(args.dk, b, see.keys, shape.key_length, kv_head, d);
  ZeroRows<T>(args.dv, b, see.keys, shape.key_length, kv_head, d);
}

template <typename T>
void BackwardTyped(const AttentionBackwardArgs& args) {
  using C = ComputeType<T>;
  const AttentionShape& shape = args.shape;
  const int64_t keys = shape.key_length;
  const int64_t padded = RoundUp(shape.head_dim, kLanes<C>);
  const auto task = [&](int64_t index, void* piece) {
    BackwardKvHead<T>(args, Scratch<C>(piece, keys, padded), index / shape.kv_heads,
                      index % shape.kv_heads);
  };
  RunTasks(shape.batch * shape.kv_heads, args.scratch, args.scratch_bytes,
           Scratch<C>(nullptr, keys, padded).bytes, task);
}

}  // namespace

void AttentionBackward(const AttentionBackwardArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("attention", args.shape.dtype,
                                             [&](auto tag) { BackwardTyped<decltype(tag)>(args); });
}

int64_t AttentionBackwardScratchBytes(const AttentionShape& shape) {
  int64_t bytes = 0;
  Dispatch<float, BFloat16, Float16, double>("attention", shape.dtype, [&](auto tag) {
    using C = ComputeType<decltype(tag)>;
    bytes = Pieces(shape.batch * shape.kv_heads) *
            Scratch<C>(nullptr, shape.key_length, RoundUp(shape.head_dim, kLanes<C>)).bytes;
  });
  return bytes;
}

}  // namespace pando::PANDO_ISA
