#pragma once

// Dropout of attention's probabilities, drawn where they are used: the CPU's bits.

#include <cstdint>

#include "engine/cuda/block.h"
#include "engine/random.h"
#include "ops/kernels/attention.h"

namespace pando {

/// Dropout of one head of one sample.
class TileDropout {
 public:
  __device__ TileDropout(const AttentionShape& s, uint32_t threshold, int64_t b, int64_t head)
      : key_(s.random),
        sample_(s.dropout > 0 ? static_cast<uint64_t>(s.sample_ids[b]) : 0),
        first_(head * s.query_length * s.key_length),
        key_length_(s.key_length),
        threshold_(threshold),
        on_(s.dropout > 0) {}

  /// The same in all threads.
  __device__ bool on() const { return on_; }

  /// Bit e says whether element e of tile[n] is kept, where the warp's 16 x 8 tile begins at
  /// (row, column), multiples of 4: rows are queries and columns keys, or with kKeysInRows the
  /// other way round. All lanes must take part.
  template <bool kKeysInRows>
  __device__ uint32_t Keep(int64_t row, int64_t column) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int g = lane / 4, t = lane % 4;
    if (key_length_ % 4 != 0) {
      uint32_t bits = 0;
      for (int e = 0; e < 4; ++e) {
        const int64_t r = row + g + Wide(e / 2 * 8), c = column + Wide(2 * t) + e % 2;
        const int64_t at = kKeysInRows ? c * key_length_ + r : r * key_length_ + c;
        const uint32_t random = RandomBits(key_, sample_, static_cast<uint64_t>(first_ + at));
        bits |= static_cast<uint32_t>(random >= threshold_) << e;
      }
      return bits;
    }
    // A block of random numbers serves four keys. Each lane draws one, and lanes exchange.
    if constexpr (kKeysInRows) {
      // Four lanes of one t need four blocks: the element e of all is in the one that lane e draws.
      const int e = g % 4;
      const uint32_t mine =
          KeepBlock(column + Wide(2 * t) + e % 2, row + Wide(e / 2 * 8) + (g & 4));
      uint32_t bits = 0;
      PANDO_UNROLL
      for (int other = 0; other < 4; ++other) {
        const uint32_t theirs = __shfl_sync(kFullMask, mine, ((g & 4) + other) * 4 + t);
        bits |= (theirs >> e & 1u) << other;
      }
      return bits;
    } else {
      // Lanes t and t ^ 1 need the same two blocks: of row g, which the even one draws, and g + 8.
      const bool odd = t % 2 == 1;
      const uint32_t mine = KeepBlock(row + g + (odd ? 8 : 0), column + Wide(t / 2 * 4));
      const uint32_t theirs = __shfl_xor_sync(kFullMask, mine, 1);
      return odd ? theirs >> 2 | (mine & 0xCu) : (mine & 3u) | (theirs & 3u) << 2;
    }
  }

 private:
  /// Bit w: whether (query i, key j + w) is kept.
  __device__ uint32_t KeepBlock(int64_t i, int64_t j) const {
    const Philox4 words =
        RandomBlock(key_, sample_, static_cast<uint64_t>(first_ + i * key_length_ + j));
    uint32_t bits = 0;
    PANDO_UNROLL
    for (int w = 0; w < 4; ++w) bits |= static_cast<uint32_t>(words.v[w] >= threshold_) << w;
    return bits;
  }

  RandomKey key_;
  uint64_t sample_;
  int64_t first_;
  int64_t key_length_;
  uint32_t threshold_;
  bool on_;
};

}  // namespace pando
