#pragma once

// Counter-based randomness: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011). A number depends on (seed, where, which sample, which step, which
// element) and on nothing else: not on rank, thread, split or the order of calls. CPU and CUDA code
// include this one header, so both draw the same bits.

#include <cstdint>

#include "engine/types.h"

namespace pando {

/// Four 32-bit words of output or of counter.
struct Philox4 {
  uint32_t v[4];
};

/// The two words of key.
struct PhiloxKey {
  uint32_t v[2];
};

inline constexpr int kPhiloxRounds = 10;

/// One round.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE Philox4 PhiloxRound(PhiloxKey key, Philox4 c) {
  const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c.v[0];
  const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c.v[2];
  return {{static_cast<uint32_t>(p1 >> 32) ^ c.v[1] ^ key.v[0], static_cast<uint32_t>(p1),
           static_cast<uint32_t>(p0 >> 32) ^ c.v[3] ^ key.v[1], static_cast<uint32_t>(p0)}};
}

/// The key of the next round.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE PhiloxKey NextPhiloxKey(PhiloxKey key) {
  return {{key.v[0] + 0x9E3779B9u, key.v[1] + 0xBB67AE85u}};
}

/// One block of Philox4x32-10.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE Philox4 Philox(PhiloxKey key, Philox4 counter) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    counter = PhiloxRound(key, counter);
    key = NextPhiloxKey(key);
  }
  return counter;
}

/// Where a random number is drawn. `site` is a hash of the drawing module's name (HashName).
struct RandomKey {
  uint64_t seed = 0;
  uint32_t site = 0;
  uint32_t step = 0;
};

PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE PhiloxKey PhiloxKeyOf(const RandomKey& k) {
  return {{static_cast<uint32_t>(k.seed) ^ k.site, static_cast<uint32_t>(k.seed >> 32)}};
}

/// Counter layout: 44 bits of block index within the sample, 52 bits of sample, 32 of step; the
/// site is mixed into the key.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE Philox4 PhiloxCounter(uint32_t step, uint64_t sample,
                                                            uint64_t block) {
  return {{static_cast<uint32_t>(block),
           static_cast<uint32_t>(block >> 32 & 0xFFFu) |
               static_cast<uint32_t>(sample >> 32 & 0xFFFFFu) << 12,
           static_cast<uint32_t>(sample), step}};
}

/// The block of four words that holds element `element` (elements 4i .. 4i + 3 share a block) of
/// global sample `sample`.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE Philox4 RandomBlock(const RandomKey& k, uint64_t sample,
                                                          uint64_t element) {
  return Philox(PhiloxKeyOf(k), PhiloxCounter(k.step, sample, element / 4));
}

/// The 32 random bits of one element.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE uint32_t RandomBits(const RandomKey& k, uint64_t sample,
                                                          uint64_t element) {
  return RandomBlock(k, sample, element).v[element % 4];
}

/// Uniform in [0, 1) with 24 bits: exact in f32.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE float UniformFromBits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

/// The threshold t such that `bits < t` holds with probability p (to 2^-32); dropout drops there.
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE uint32_t DropThreshold(double p) {
  return p >= 1.0 ? 0xFFFFFFFFu : static_cast<uint32_t>(p * 4294967296.0);
}

/// 32-bit FNV-1a of a module's name: the `site` of its draws.
constexpr uint32_t HashName(const char* name) {
  uint32_t h = 0x811C9DC5u;
  for (; *name != '\0'; ++name) h = (h ^ static_cast<uint8_t>(*name)) * 0x01000193u;
  return h;
}

}  // namespace pando
