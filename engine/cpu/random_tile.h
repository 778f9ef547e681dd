#pragma once

// Random bits for a run of elements at a time, so that Philox vectorises.

#include "engine/random.h"
#include "engine/types.h"

namespace pando::PANDO_ISA {

/// Most elements that a RandomTile holds: small enough for the stack and the first-level cache.
inline constexpr int64_t kRandomTile = 256;

/// The random bits of elements [first, first + count) of one sample, count <= kRandomTile.
class RandomTile {
 public:
  RandomTile(const RandomKey& key, int64_t sample, int64_t first, int64_t count)
      : offset_(first % 4) {
    const int64_t blocks = (offset_ + count + 3) / 4;
    const int64_t first_block = first / 4;
    for (int64_t b = 0; b < blocks; ++b) {
      const Philox4 r = RandomBlock(key, static_cast<uint64_t>(sample),
                                    static_cast<uint64_t>(first_block + b) * 4);
      for (int w = 0; w < 4; ++w) bits_[4 * b + w] = r.v[w];
    }
  }

  /// RandomBits of element first + i is data()[i].
  const uint32_t* data() const { return bits_ + offset_; }

 private:
  int64_t offset_;
  uint32_t bits_[kRandomTile + 4];
};

}  // namespace pando::PANDO_ISA
