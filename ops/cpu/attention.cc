// Attention on the CPU: forward, and the table. How tiles lie: attention_tile.h.

#include "ops/kernels/attention.h"

#include "engine/cpu/dispatch.h"
#include "ops/cpu/attention_backward.h"
#include "ops/cpu/attention_decode.h"
#include "ops/cpu/attention_tile.h"
#include "ops/math.h"

namespace pando::PANDO_ISA {
namespace {

/// Groups of kQueries that one task takes through the keys together, so that a tile of keys is
/// loaded once for all.
constexpr int64_t kGroups = 4;

template <typename C>
struct Scratch {
  C *q, *out;            ///< [kGroups][d padded][kQueries]
  C *max, *sum, *decay;  ///< [kGroups][kQueries]
  C *k, *v;              ///< [kKeys][d padded]
  C* scores;             ///< [kKeys][kQueries]
  C* factors;            ///< dropout's: [kKeys + 4][kQueries]
  C* rows;               ///< [kQueries][d padded]
  int64_t bytes;

  Scratch(void* base, int64_t padded) {
    Carver carve(base);
    q = carve.Take<C>(kGroups * padded * kQueries);
    out = carve.Take<C>(kGroups * padded * kQueries);
    max = carve.Take<C>(kGroups * kQueries);
    sum = carve.Take<C>(kGroups * kQueries);
    decay = carve.Take<C>(kQueries);
    k = carve.Take<C>(kKeys * padded);
    v = carve.Take<C>(kKeys * padded);
    scores = carve.Take<C>(kKeys * kQueries);
    factors = carve.Take<C>((kKeys + 4) * kQueries);
    rows = carve.Take<C>(kQueries * padded);
    bytes = carve.used();
  }
};

/// One tile's step of the running softmax. Scores become 2^(score - max); `decay` is by how much
/// earlier sums shrink. All pointers are at the strip's first lane.
template <typename C>
void SoftmaxStep(int64_t keys, int64_t lanes, C* __restrict scores, C* __restrict max,
                 C* __restrict sum, C* __restrict decay) {
  for (int64_t i = 0; i < lanes; i += kLanes<C>) {
    Vector<C> best = Load(max + i);
    for (int64_t j = 0; j < keys; ++j) {
      const Vector<C> s = Load(scores + j * kQueries + i);
      best = best > s ? best : s;
    }
    Store(decay + i, Load(max + i) - best);
    Store(max + i, best);
  }
  for (int64_t i = 0; i < lanes; ++i) {
    decay[i] = Exp2OfNegative(decay[i]);
    sum[i] *= decay[i];
  }
  for (int64_t j = 0; j < keys; ++j) {
    C* __restrict row = scores + j * kQueries;
    for (int64_t i = 0; i < lanes; ++i) {
      const C e = Exp2OfNegative(row[i] - max[i]);
      row[i] = e;
      sum[i] += e;
    }
  }
}

/// One tile of keys against one group of queries.
template <typename C>
void GroupTile(const Visible& see, const Dropout<C>& dropout, const Scratch<C>& s, int64_t group,
               int64_t i0, int64_t queries, int64_t j0, int64_t keys, int64_t d) {
  const int64_t padded = RoundUp(d, kLanes<C>);
  const C* q = s.q + group * padded * kQueries;
  C* out = s.out + group * padded * kQueries;
  ForEachStrip<C>(see, i0, queries, j0, keys, [&](const Strip& strip) {
    const int64_t lane = strip.lane;
    C* scores = s.scores + lane;
    TileProduct<Left::kByRow>(Tile<C>{strip.keys, strip.lanes, d, s.k, padded, q + lane, kQueries,
                                      scores, kQueries, Into::kOverwrite, nullptr});
    if (strip.masked) MaskStrip(see, i0, j0, strip, scores);
    const int64_t at = group * kQueries + lane;
    SoftmaxStep(strip.keys, strip.lanes, scores, s.max + at, s.sum + at, s.decay + lane);
    if (dropout.on()) {
      dropout.Draw(i0 + lane, j0, strip.lanes, strip.keys, s.factors + lane);
      for (int64_t j = 0; j < strip.keys; ++j) {
        for (int64_t i = 0; i < strip.lanes; ++i) {
          scores[j * kQueries + i] *= s.factors[j * kQueries + lane + i];
        }
      }
    }
    TileProduct<Left::kByColumn>(
        Tile<C>{d, strip.lanes, strip.keys, s.v, padded, scores, kQueries, out + lane, kQueries,
                j0 == 0 ? Into::kOverwrite : Into::kScaleAdd, s.decay + lane});
  });
}

/// Writes a group's output and log-sum-exps.
template <typename T>
void FinishGroup(const AttentionForwardArgs& args, const Scratch<ComputeType<T>>& s, int64_t group,
                 int64_t b, int64_t head, int64_t i0, int64_t queries) {
  using C = ComputeType<T>;
  const int64_t d = args.shape.head_dim;
  const int64_t padded = RoundUp(d, kLanes<C>);
  const int64_t lanes = RoundUp(queries, kLanes<C>);
  C* out = s.out + group * padded * kQueries;
  const C* sum = s.sum + group * kQueries;
  for (int64_t i = 0; i < lanes; ++i) s.decay[i] = 1 / sum[i];
  for (int64_t e = 0; e < d; ++e) {
    for (int64_t i = 0; i < lanes; ++i) out[e * kQueries + i] *= s.decay[i];
  }
  Transpose(padded, lanes, out, kQueries, s.rows, padded);
  StoreRows<T>(s.rows, padded, queries, d, C{1}, RowAt<T>(args.out, b, i0, head, d),
               args.out.row_stride);
  if (args.lse == nullptr) return;
  C* lse = static_cast<C*>(args.lse) +
           (b * args.shape.query_heads + head) * args.shape.query_length + i0;
  for (int64_t i = 0; i < queries; ++i) {
    lse[i] = s.max[group * kQueries + i] * static_cast<C>(kLn2) + Log(sum[i]);
  }
}

/// Zeros for queries that see nothing.
template <typename T>
void FinishBlind(const AttentionForwardArgs& args, int64_t b, int64_t head, int64_t begin,
                 int64_t end) {
  using C = ComputeType<T>;
  ZeroRows<T>(args.out, b, begin, end, head, args.shape.head_dim);
  if (args.lse == nullptr) return;
  C* lse =
      static_cast<C*>(args.lse) + (b * args.shape.query_heads + head) * args.shape.query_length;
  for (int64_t i = begin; i < end; ++i) lse[i] = __builtin_inff();
}

template <typename T>
void LoadGroup(const AttentionForwardArgs& args, const Scratch<ComputeType<T>>& s, int64_t group,
               int64_t b, int64_t head, int64_t i0, int64_t queries) {
  using C = ComputeType<T>;
  const int64_t d = args.shape.head_dim;
  const int64_t padded = RoundUp(d, kLanes<C>);
  const int64_t lanes = RoundUp(queries, kLanes<C>);
  LoadRows<T>(RowAt<T>(args.q, b, i0, head, d), args.q.row_stride, queries, lanes, d,
              static_cast<C>(args.shape.scale * kLog2E), s.rows, padded);
  Transpose(lanes, padded, s.rows, padded, s.q + group * padded * kQueries, kQueries);
  for (int64_t i = 0; i < lanes; ++i) {
    s.max[group * kQueries + i] = -__builtin_inff();
    s.sum[group * kQueries + i] = 0;
  }
}

/// The queries [begin, end) of one head: at most kGroups * kQueries.
template <typename T>
void ForwardRange(const AttentionForwardArgs& args, const Scratch<ComputeType<T>>& s, int64_t b,
                  int64_t head, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const AttentionShape& shape = args.shape;
  const int64_t d = shape.head_dim;
  const int64_t padded = RoundUp(d, kLanes<C>);
  const int64_t kv_head = head / (shape.query_heads / shape.kv_heads);
  const Visible see(shape, b);
  const Dropout<C> dropout(shape, b, head);
  const int64_t first = Min(end, Max(begin, see.first));
  const int64_t last = Max(first, Min(end, see.end));
  FinishBlind<T>(args, b, head, begin, first);
  FinishBlind<T>(args, b, head, last, end);
  for (int64_t i0 = first; i0 < last; i0 += kQueries) {
    LoadGroup<T>(args, s, (i0 - first) / kQueries, b, head, i0, Min(kQueries, last - i0));
  }
  const int64_t key_end = first < last ? see.KeyEnd(last - 1) : 0;
  for (int64_t j0 = 0; j0 < key_end; j0 += kKeys) {
    const int64_t keys = Min(kKeys, key_end - j0);
    LoadRows<T>(RowAt<T>(args.k, b, j0, kv_head, d), args.k.row_stride, keys, keys, d, C{1}, s.k,
                padded);
    LoadRows<T>(RowAt<T>(args.v, b, j0, kv_head, d), args.v.row_stride, keys, keys, d, C{1}, s.v,
                padded);
    for (int64_t i0 = first; i0 < last; i0 += kQueries) {
      GroupTile<C>(see, dropout, s, (i0 - first) / kQueries, i0, Min(kQueries, last - i0), j0, keys,
                   d);
    }
  }
  for (int64_t i0 = first; i0 < last; i0 += kQueries) {
    FinishGroup<T>(args, s, (i0 - first) / kQueries, b, head, i0, Min(kQueries, last - i0));
  }
}

/// Ranges of queries that a head is cut into, a task each.
int64_t RangesPerHead(const AttentionShape& shape) {
  return (shape.query_length + kGroups * kQueries - 1) / (kGroups * kQueries);
}

template <typename T>
void ForwardTyped(const AttentionForwardArgs& args) {
  using C = ComputeType<T>;
  const AttentionShape& shape = args.shape;
  const int64_t padded = RoundUp(shape.head_dim, kLanes<C>);
  const int64_t ranges = RangesPerHead(shape);
  const auto task = [&](int64_t index, void* piece) {
    const int64_t row = index / ranges;
    // Long and short ranges of a causal head alternate, to balance the threads.
    const int64_t turn = index % ranges;
    const int64_t range = turn % 2 == 0 ? turn / 2 : ranges - 1 - turn / 2;
    const int64_t begin = range * kGroups * kQueries;
    ForwardRange<T>(args, Scratch<C>(piece, padded), row / shape.query_heads,
                    row % shape.query_heads, begin,
                    Min(shape.query_length, begin + kGroups * kQueries));
  };
  RunTasks(shape.batch * shape.query_heads * ranges, args.scratch, args.scratch_bytes,
           Scratch<C>(nullptr, padded).bytes, task);
}

void Forward(const AttentionForwardArgs& args, void* /*stream*/) {
  if (AttentionDecodes(args.shape)) return AttentionDecode(args);
  Dispatch<float, BFloat16, Float16, double>("attention", args.shape.dtype,
                                             [&](auto tag) { ForwardTyped<decltype(tag)>(args); });
}

int64_t ForwardScratchBytes(const AttentionShape& shape) {
  if (AttentionDecodes(shape)) return AttentionDecodeScratchBytes(shape);
  int64_t bytes = 0;
  Dispatch<float, BFloat16, Float16, double>("attention", shape.dtype, [&](auto tag) {
    using C = ComputeType<decltype(tag)>;
    bytes = Pieces(shape.batch * shape.query_heads * RangesPerHead(shape)) *
            Scratch<C>(nullptr, RoundUp(shape.head_dim, kLanes<C>)).bytes;
  });
  return bytes;
}

}  // namespace

extern const AttentionKernels kAttention;
const AttentionKernels kAttention = {Forward, AttentionBackward, ForwardScratchBytes,
                                     AttentionBackwardScratchBytes};

}  // namespace pando::PANDO_ISA
