#pragma once

#include <cstdint>

#include "engine/types.h"

namespace pando {

/// A divisor known to the host, by which the device divides with one wide product: a division of 64
/// bits is a call there of some 100 instructions. After Granlund and Montgomery, "Division by
/// invariant integers using multiplication" (1994): with 2^(l-1) < d <= 2^l and m = ceil(2^(63+l) /
/// d), floor(a / d) = floor(a m / 2^(63+l)) for all 0 <= a < 2^63.
struct Divisor {
  uint64_t magic;
  int shift;
};

/// For d > 0.
inline Divisor MakeDivisor(int64_t d) {
  if (d <= 0) __builtin_unreachable();
  int shift = 0;
  while (shift < 63 && (int64_t{1} << shift) < d) ++shift;
  const unsigned __int128 power = static_cast<unsigned __int128>(1) << (63 + shift);
  const auto wide = static_cast<unsigned __int128>(d);
  return {static_cast<uint64_t>((power + wide - 1) / wide), shift};
}

/// a / d, for a >= 0.
PANDO_HOST_DEVICE inline int64_t Quotient(int64_t a, Divisor d) {
  const uint64_t twice = static_cast<uint64_t>(a) << 1;
  const auto product = static_cast<unsigned __int128>(twice) * d.magic;
  return static_cast<int64_t>(static_cast<uint64_t>(product >> 64) >> d.shift);
}

}  // namespace pando
