#include "engine/random.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

// Published vectors: Random123, kat_vectors, "philox4x32 10".
TEST(Philox, PublishedVectors) {
  struct Case {
    Philox4 counter;
    PhiloxKey key;
    Philox4 want;
  };
  const Case cases[] = {
      {{{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
       {{0xffffffff, 0xffffffff}},
       {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       {{0xa4093822, 0x299f31d0}},
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
  };
  for (const Case& c : cases) {
    const Philox4 got = Philox(c.key, c.counter);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.v[i], c.want.v[i]);
  }
}

TEST(Philox, EveryCoordinateMatters) {
  const RandomKey key{.seed = 1, .site = 2, .step = 3};
  const uint32_t base = RandomBits(key, 4, 5);
  EXPECT_NE(base, RandomBits({.seed = 9, .site = 2, .step = 3}, 4, 5));
  EXPECT_NE(base, RandomBits({.seed = 1ull << 40 | 1, .site = 2, .step = 3}, 4, 5));
  EXPECT_NE(base, RandomBits({.seed = 1, .site = 9, .step = 3}, 4, 5));
  EXPECT_NE(base, RandomBits({.seed = 1, .site = 2, .step = 9}, 4, 5));
  EXPECT_NE(base, RandomBits(key, 9, 5));
  EXPECT_NE(base, RandomBits(key, 4 + (1ull << 40), 5));
  EXPECT_NE(base, RandomBits(key, 4, 6));
  EXPECT_NE(base, RandomBits(key, 4, 5 + (1ull << 40)));
}

TEST(Philox, UniformHasMeanAndVarianceOfTheUniform) {
  const RandomKey key{.seed = 42, .site = HashName("h.0.attn"), .step = 0};
  double sum = 0, squares = 0;
  constexpr int kN = 1 << 20;
  for (int i = 0; i < kN; ++i) {
    const double u = UniformFromBits(RandomBits(key, 0, i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  // Five standard errors: sd of u is 0.2887, of u^2 0.298.
  EXPECT_NEAR(sum / kN, 0.5, 5 * 0.2887 / 1024);
  EXPECT_NEAR(squares / kN, 1.0 / 3, 5 * 0.298 / 1024);
}

}  // namespace
}  // namespace pando
