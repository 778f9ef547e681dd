#pragma once

// What attention's forward and backward share: which keys a query sees, tiles of rows as the
// compute type, scratch, dropout.
//
// Scores lie transposed, S[key][query]: the vector lanes are queries. So softmax needs no sums
// across lanes, keys and values are read as they lie (one element, broadcast), and dropping the
// tail of a tile is a matter of loop bounds.

#include <stdint.h>

#include "engine/cpu/parallel.h"
#include "engine/random.h"
#include "engine/types.h"
#include "ops/cpu/simd.h"
#include "ops/kernels/attention.h"

namespace pando::PANDO_ISA {

/// Queries whose scores lie side by side: the row length of score tiles. A multiple of every
/// level's vector.
inline constexpr int64_t kQueries = 64;
/// Keys of a tile.
inline constexpr int64_t kKeys = 64;
/// Where the causal diagonal crosses a tile, it is cut into strips of this many queries, each with
/// its own end of keys.
inline constexpr int64_t kStrip = 16;

/// Scores are computed in units of ln 2 (the factor goes into q), as powers of two cost least.
inline constexpr double kLog2E = 1.4426950408889634;
inline constexpr double kLn2 = 0.6931471805599453;

/// 2^x for x <= 0 within 1 unit in the last place; 0 below -126, where results are subnormal. Fewer
/// steps than Exp needs: no bounds above, one factor of 2^n, no product to reduce.
PANDO_ALWAYS_INLINE float Exp2OfNegative(float x) {
  // Adding 1.5 * 2^23 + 127 rounds to an integer, and leaves it, plus 127, in the low bits.
  const float shifted = x + (0x1.8p+23f + 127.0f);
  const float r = x - (shifted - (0x1.8p+23f + 127.0f));
  // (2^r - 1) / r on [-1/2, 1/2], minimax in the relative error of 2^r (2e-9).
  float q = 0x1.41fbbcp-13f;
  q = q * r + 0x1.5f3e52p-10f;
  q = q * r + 0x1.3b2d4cp-7f;
  q = q * r + 0x1.c6aee8p-5f;
  q = q * r + 0x1.ebfbdcp-3f;
  q = q * r + 0x1.62e430p-1f;
  const float scale = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, shifted) << 23);
  return x < -126.0f ? 0.0f : (q * r + 1.0f) * scale;
}
PANDO_ALWAYS_INLINE double Exp2OfNegative(double x) { return __builtin_exp2(x); }

inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }

using Visible = AttentionVisible;

/// A rectangle of a score tile: `lanes` queries from `lane` on (rounded up to a vector; `live` are
/// real) and the first `keys` keys. Where `masked`, the diagonal runs through it.
struct Strip {
  int64_t lane, lanes, live, keys;
  bool masked;
};

/// Cuts the tile of `queries` queries from `i0` and `keys` keys from `j0` into the rectangles that
/// have to be computed.
template <typename C, typename Body>
inline void ForEachStrip(const Visible& see, int64_t i0, int64_t queries, int64_t j0, int64_t keys,
                         const Body& body) {
  const bool whole = see.KeyEnd(i0) >= j0 + keys;
  const int64_t step = whole ? queries : kStrip;
  for (int64_t lane = 0; lane < queries; lane += step) {
    const int64_t live = Min(step, queries - lane);
    const int64_t seen = Min(keys, see.KeyEnd(i0 + lane + live - 1) - j0);
    if (seen <= 0) continue;
    body(Strip{lane, RoundUp(live, kLanes<C>), live, seen, see.KeyEnd(i0 + lane) < j0 + seen});
  }
}

/// Sets the scores that lie beyond the diagonal to -infinity. `scores` is the strip's corner.
template <typename C>
void MaskStrip(const Visible& see, int64_t i0, int64_t j0, const Strip& strip, C* scores) {
  for (int64_t j = 0; j < strip.keys; ++j) {
    const int64_t hidden = Min(strip.lanes, j0 + j - see.offset - i0 - strip.lane);
    for (int64_t i = 0; i < hidden; ++i) scores[j * kQueries + i] = -__builtin_inff();
  }
}

/// Element (row, head) of sample b.
template <typename T>
inline const T* RowAt(const ConstAttentionRows& rows, int64_t b, int64_t row, int64_t head,
                      int64_t d) {
  return static_cast<const T*>(rows.data) + b * rows.batch_stride + row * rows.row_stride +
         head * d;
}
template <typename T>
inline T* RowAt(const AttentionRows& rows, int64_t b, int64_t row, int64_t head, int64_t d) {
  return static_cast<T*>(rows.data) + b * rows.batch_stride + row * rows.row_stride + head * d;
}

/// to[row][0 .. ld) = scale * from[row][0 .. d), then zeros; rows from `rows` to `padded` are zero.
template <typename T>
void LoadRows(const T* from, int64_t row_stride, int64_t rows, int64_t padded, int64_t d,
              ComputeType<T> scale, ComputeType<T>* to, int64_t ld) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = from + r * row_stride;
    ComputeType<T>* out = to + r * ld;
    for (int64_t i = 0; i < d; ++i) out[i] = ToFloat(in[i]) * scale;
    for (int64_t i = d; i < ld; ++i) out[i] = 0;
  }
  for (int64_t i = rows * ld; i < padded * ld; ++i) to[i] = 0;
}

/// to[row][0 .. d) = scale * from[row][0 .. d), rounded to T.
template <typename T>
void StoreRows(const ComputeType<T>* from, int64_t ld, int64_t rows, int64_t d,
               ComputeType<T> scale, T* to, int64_t row_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const ComputeType<T>* in = from + r * ld;
    T* out = to + r * row_stride;
    for (int64_t i = 0; i < d; ++i) out[i] = RoundTo<T>(in[i] * scale);
  }
}

/// Zeros in rows [begin, end) of one head.
template <typename T>
void ZeroRows(const AttentionRows& rows, int64_t b, int64_t begin, int64_t end, int64_t head,
              int64_t d) {
  for (int64_t r = begin; r < end; ++r) {
    T* out = RowAt<T>(rows, b, r, head, d);
    for (int64_t i = 0; i < d; ++i) out[i] = RoundTo<T>(0);
  }
}

/// Dropout of one head of one sample.
template <typename C>
class Dropout {
 public:
  Dropout(const AttentionShape& s, int64_t b, int64_t head)
      : key_(s.random),
        sample_(s.dropout > 0 ? static_cast<uint64_t>(s.sample_ids[b]) : 0),
        first_(head * s.query_length * s.key_length),
        key_length_(s.key_length),
        threshold_(DropThreshold(s.dropout)),
        kept_(static_cast<C>(1.0 / (1.0 - s.dropout))),
        on_(s.dropout > 0) {}

  bool on() const { return on_; }

  /// factors[key][query] = 0 or 1 / (1 - p) for `lanes` queries from i0 and `keys` keys from j0, a
  /// multiple of 4. Has room for 4 rows more than `keys`.
  void Draw(int64_t i0, int64_t j0, int64_t lanes, int64_t keys, C* factors) const {
    const bool aligned = key_length_ % 4 == 0;
    const int64_t start = first_ + i0 * key_length_ + j0;
    for (int64_t t = 0; t < keys + (aligned ? 0 : 3); t += 4) {
      DrawBlocks(start + t, lanes, factors + t * kQueries);
    }
    if (!aligned) Align(start, lanes, keys, factors);
  }

 private:
  /// Four rows of factors: all words of the block that holds element start + i * key_length_.
  void DrawBlocks(int64_t start, int64_t lanes, C* __restrict f) const {
    const RandomKey key = key_;
    const uint64_t sample = sample_;
    const uint32_t threshold = threshold_;
    const C kept = kept_;
    const int64_t stride = key_length_;
    for (int64_t i = 0; i < lanes; ++i) {
      const Philox4 w = RandomBlock(key, sample, static_cast<uint64_t>(start + i * stride));
      f[i] = w.v[0] < threshold ? C{0} : kept;
      f[kQueries + i] = w.v[1] < threshold ? C{0} : kept;
      f[2 * kQueries + i] = w.v[2] < threshold ? C{0} : kept;
      f[3 * kQueries + i] = w.v[3] < threshold ? C{0} : kept;
    }
  }

  /// Where rows of the T x T matrix don't start on a block, each query's column is moved up by
  /// where in its block it starts.
  void Align(int64_t start, int64_t lanes, int64_t keys, C* f) const {
    for (int64_t j = 0; j < keys; ++j) {
      C* row = f + j * kQueries;
      for (int64_t i = 0; i < lanes; ++i) {
        row[i] = row[((start + i * key_length_) & 3) * kQueries + i];
      }
    }
  }

  RandomKey key_;
  uint64_t sample_;
  int64_t first_;
  int64_t key_length_;
  uint32_t threshold_;
  C kept_;
  bool on_;
};

/// Hands out aligned pieces of scratch; with a null base it only counts.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}
  template <typename C>
  C* Take(int64_t count) {
    C* piece = base_ == nullptr ? nullptr : reinterpret_cast<C*>(base_ + used_);
    used_ += RoundUp(count * static_cast<int64_t>(sizeof(C)), 64);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

/// Pieces of scratch worth having: one for each thread that will find a task.
inline int64_t Pieces(int64_t tasks) { return Max(1, Min(tasks, NumThreads())); }

/// Runs body(task, scratch) for all tasks, on as many threads as there are pieces of scratch. What
/// a task computes may not depend on which other tasks share its piece.
template <typename Body>
inline void RunTasks(int64_t tasks, void* scratch, int64_t scratch_bytes, int64_t bytes_per_thread,
                     const Body& body) {
  if (tasks == 0) return;
  const int64_t pieces = Max(1, Min(tasks, scratch_bytes / bytes_per_thread));
  const int64_t grain = (tasks + pieces - 1) / pieces;
  ParallelFor(tasks, grain, [&](int64_t begin, int64_t end) {
    char* const piece = static_cast<char*>(scratch) + begin / grain * bytes_per_thread;
    for (int64_t task = begin; task < end; ++task) body(task, piece);
  });
}

}  // namespace pando::PANDO_ISA
