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
    // Round by round over all blocks, not block by block over all rounds: the inner loop is then
    // one that compilers turn into vector multiplications of 32 by 32 bits.
    uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
    for (int64_t b = 0; b < blocks; ++b) {
      const Philox4 c = PhiloxCounter(key.step, static_cast<uint64_t>(sample),
                                      static_cast<uint64_t>(first / 4 + b));
      c0[b] = c.v[0], c1[b] = c.v[1], c2[b] = c.v[2], c3[b] = c.v[3];
    }
    PhiloxKey round_key = PhiloxKeyOf(key);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      for (int64_t b = 0; b < blocks; ++b) {
        const Philox4 c = PhiloxRound(round_key, {{c0[b], c1[b], c2[b], c3[b]}});
        c0[b] = c.v[0], c1[b] = c.v[1], c2[b] = c.v[2], c3[b] = c.v[3];
      }
      round_key = NextPhiloxKey(round_key);
    }
    for (int64_t b = 0; b < blocks; ++b) {
      const uint32_t words[] = {c0[b], c1[b], c2[b], c3[b]};
      for (int w = 0; w < 4; ++w) bits_[4 * b + w] = words[w];
    }
  }

  /// RandomBits of element first + i is data()[i].
  const uint32_t* data() const { return bits_ + offset_; }

 private:
  // One more than count / 4: a run may start within a block.
  static constexpr int64_t kBlocks = kRandomTile / 4 + 1;

  int64_t offset_;
  uint32_t bits_[4 * kBlocks];
};

}  // namespace pando::PANDO_ISA
