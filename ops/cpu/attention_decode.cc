// Attention of a few queries to many keys. Scores lie [query][key]: here the vector lanes are keys.
// One task owns a key-value head of a sample and takes all queries of its group of heads past each
// tile of keys, which is read once.

#include "ops/cpu/attention_decode.h"

#include "engine/cpu/dispatch.h"
#include "ops/cpu/attention_tile.h"
#include "ops/math.h"

namespace pando::PANDO_ISA {
namespace {

template <typename C>
struct Scratch {
  C *q, *out;            ///< [group x queries][d padded]
  C* scores;             ///< [group x queries][kKeys]
  C *max, *sum;          ///< [group x queries]
  C *k, *k_columns, *v;  ///< a tile of keys; k_columns [d padded][kKeys]
  int64_t bytes;

  Scratch(void* base, const AttentionShape& shape) {
    const int64_t rows = shape.query_heads / shape.kv_heads * shape.query_length;
    const int64_t padded = RoundUp(shape.head_dim, kLanes<C>);
    Carver carve(base);
    q = carve.Take<C>(rows * padded);
    out = carve.Take<C>(rows * padded);
    scores = carve.Take<C>(rows * kKeys);
    max = carve.Take<C>(rows);
    sum = carve.Take<C>(rows);
    k = carve.Take<C>(kKeys * padded);
    k_columns = carve.Take<C>(kKeys * padded);
    v = carve.Take<C>(kKeys * padded);
    bytes = carve.used();
  }
};

/// One tile's step of one row's running softmax: the first `seen` scores become 2^(score - max),
/// the rest up to `lanes` zero; earlier sums shrink.
template <typename C>
void RowStep(int64_t seen, int64_t lanes, C* scores, C* max, C* sum, C* out, int64_t padded) {
  constexpr int64_t kW = kLanes<C>;
  for (int64_t j = Max(0, seen); j < lanes; ++j) scores[j] = -__builtin_inff();
  if (seen <= 0) {
    for (int64_t j = 0; j < lanes; ++j) scores[j] = 0;
    return;
  }
  Vector<C> high = Load(scores);
  for (int64_t j = kW; j < lanes; j += kW) {
    const Vector<C> s = Load(scores + j);
    high = high > s ? high : s;
  }
  C best = *max;
  for (int64_t l = 0; l < kW; ++l) best = best > high[l] ? best : high[l];
  for (int64_t j = 0; j < lanes; ++j) scores[j] = Exp2OfNegative(scores[j] - best);
  Vector<C> sums = {};
  for (int64_t j = 0; j < lanes; j += kW) sums += Load(scores + j);
  C total = 0;
  for (int64_t l = 0; l < kW; ++l) total += sums[l];
  const C decay = Exp2OfNegative(*max - best);
  *max = best;
  *sum = *sum * decay + total;
  for (int64_t e = 0; e < padded; ++e) out[e] *= decay;
}

template <typename T>
void LoadQueries(const AttentionForwardArgs& args, const Scratch<ComputeType<T>>& s, int64_t b,
                 int64_t head, int64_t row) {
  using C = ComputeType<T>;
  const int64_t d = args.shape.head_dim;
  const int64_t queries = args.shape.query_length;
  const int64_t padded = RoundUp(d, kLanes<C>);
  LoadRows<T>(RowAt<T>(args.q, b, 0, head, d), args.q.row_stride, queries, queries, d,
              static_cast<C>(args.shape.scale * kLog2E), s.q + row * padded, padded);
  for (int64_t i = row * padded; i < (row + queries) * padded; ++i) s.out[i] = 0;
  for (int64_t i = row; i < row + queries; ++i) {
    s.max[i] = -__builtin_inff();
    s.sum[i] = 0;
  }
}

/// Writes one head's output and log-sum-exps. Queries that saw nothing have sum 0 and output 0.
template <typename T>
void StoreQueries(const AttentionForwardArgs& args, const Scratch<ComputeType<T>>& s, int64_t b,
                  int64_t head, int64_t row) {
  using C = ComputeType<T>;
  const int64_t d = args.shape.head_dim;
  const int64_t queries = args.shape.query_length;
  const int64_t padded = RoundUp(d, kLanes<C>);
  C* lse = static_cast<C*>(args.lse) + (b * args.shape.query_heads + head) * queries;
  for (int64_t i = 0; i < queries; ++i) {
    const bool saw = s.sum[row + i] != 0;
    StoreRows<T>(s.out + (row + i) * padded, padded, 1, d, saw ? 1 / s.sum[row + i] : 1,
                 RowAt<T>(args.out, b, i, head, d), args.out.row_stride);
    if (args.lse == nullptr) continue;
    lse[i] = saw ? s.max[row + i] * static_cast<C>(kLn2) + Log(s.sum[row + i]) : __builtin_inff();
  }
}

/// All queries of a group past the tile of keys that starts at j0.
template <typename T>
void DecodeTile(const AttentionForwardArgs& args, const Visible& see,
                const Scratch<ComputeType<T>>& s, int64_t b, int64_t kv_head, int64_t j0,
                int64_t key_end) {
  using C = ComputeType<T>;
  const AttentionShape& shape = args.shape;
  const int64_t d = shape.head_dim;
  const int64_t padded = RoundUp(d, kLanes<C>);
  const int64_t keys = Min(kKeys, key_end - j0);
  const int64_t lanes = RoundUp(keys, kLanes<C>);
  const int64_t rows = shape.query_heads / shape.kv_heads * shape.query_length;
  LoadRows<T>(RowAt<T>(args.k, b, j0, kv_head, d), args.k.row_stride, keys, lanes, d, C{1}, s.k,
              padded);
  LoadRows<T>(RowAt<T>(args.v, b, j0, kv_head, d), args.v.row_stride, keys, keys, d, C{1}, s.v,
              padded);
  Transpose(lanes, padded, s.k, padded, s.k_columns, kKeys);
  TileProduct<Left::kByRow>(Tile<C>{rows, lanes, d, s.q, padded, s.k_columns, kKeys, s.scores,
                                    kKeys, Into::kOverwrite, nullptr});
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t i = row % shape.query_length;
    const int64_t end = i < see.first || i >= see.end ? 0 : see.KeyEnd(i);
    RowStep(Min(keys, end - j0), lanes, s.scores + row * kKeys, s.max + row, s.sum + row,
            s.out + row * padded, padded);
  }
  TileProduct<Left::kByRow>(Tile<C>{rows, padded, keys, s.scores, kKeys, s.v, padded, s.out, padded,
                                    Into::kAdd, nullptr});
}

template <typename T>
void DecodeKvHead(const AttentionForwardArgs& args, const Scratch<ComputeType<T>>& s, int64_t b,
                  int64_t kv_head) {
  const AttentionShape& shape = args.shape;
  const int64_t group = shape.query_heads / shape.kv_heads;
  const Visible see(shape, b);
  for (int64_t g = 0; g < group; ++g) {
    LoadQueries<T>(args, s, b, kv_head * group + g, g * shape.query_length);
  }
  const int64_t key_end = see.first < see.end ? see.KeyEnd(see.end - 1) : 0;
  for (int64_t j0 = 0; j0 < key_end; j0 += kKeys) {
    DecodeTile<T>(args, see, s, b, kv_head, j0, key_end);
  }
  for (int64_t g = 0; g < group; ++g) {
    StoreQueries<T>(args, s, b, kv_head * group + g, g * shape.query_length);
  }
}

template <typename T>
void DecodeTyped(const AttentionForwardArgs& args) {
  using C = ComputeType<T>;
  const AttentionShape& shape = args.shape;
  const auto task = [&](int64_t index, void* piece) {
    DecodeKvHead<T>(args, Scratch<C>(piece, shape), index / shape.kv_heads, index % shape.kv_heads);
  };
  RunTasks(shape.batch * shape.kv_heads, args.scratch, args.scratch_bytes,
           Scratch<C>(nullptr, shape).bytes, task);
}

}  // namespace

bool AttentionDecodes(const AttentionShape& shape) {
  return shape.dropout == 0 && shape.query_length * 2 * SizeOf(DType::kF32) <= kVectorBytes;
}

void AttentionDecode(const AttentionForwardArgs& args) {
  Dispatch<float, BFloat16, Float16, double>("attention", args.shape.dtype,
                                             [&](auto tag) { DecodeTyped<decltype(tag)>(args); });
}

int64_t AttentionDecodeScratchBytes(const AttentionShape& shape) {
  int64_t bytes = 0;
  Dispatch<float, BFloat16, Float16, double>("attention", shape.dtype, [&](auto tag) {
    using C = ComputeType<decltype(tag)>;
    bytes = Pieces(shape.batch * shape.kv_heads) * Scratch<C>(nullptr, shape).bytes;
  });
  return bytes;
}

}  // namespace pando::PANDO_ISA
