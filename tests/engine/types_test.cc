#include "engine/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pando {
namespace {

TEST(Types, EveryFloat16RoundTrips) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const float f = ToFloat(Float16{static_cast<uint16_t>(b)});
    const Float16 back = ToFloat16(f);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(ToFloat(back)));
    } else {
      ASSERT_EQ(back.bits, b);
    }
  }
}

TEST(Types, EveryBFloat16RoundTrips) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const float f = ToFloat(BFloat16{static_cast<uint16_t>(b)});
    const BFloat16 back = ToBFloat16(f);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(ToFloat(back)));
    } else {
      ASSERT_EQ(back.bits, b);
    }
  }
}

// The compiler's own _Float16 is the outside reference.
TEST(Types, Float16RoundsAsTheCompilerDoes) {
  for (uint64_t u = 0; u < (1ull << 32); u += 4099) {
    const float f = __builtin_bit_cast(float, static_cast<uint32_t>(u));
    if (std::isnan(f)) continue;
    const auto want = static_cast<_Float16>(f);
    ASSERT_EQ(ToFloat16(f).bits, __builtin_bit_cast(uint16_t, want)) << f;
  }
}

TEST(Types, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(ToBFloat16(1.0f + 0x1p-8f).bits, 0x3F80);      // tie to even: down
  EXPECT_EQ(ToBFloat16(1.0f + 3 * 0x1p-8f).bits, 0x3F82);  // tie to even: up
  EXPECT_EQ(ToBFloat16(1.0f + 0x1.1p-8f).bits, 0x3F81);
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace pando
