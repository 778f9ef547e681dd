#include "dist/hetero/time_curve.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

TEST(TimeCurve, GoesThroughItsPoints) {
  const auto curve = TimeCurve::Fit({{8, 5.0}, {1, 1.0}, {2, 1.5}, {4, 2.75}});
  ASSERT_TRUE(curve.ok());
  EXPECT_EQ(curve->largest(), 8);
  EXPECT_EQ(curve->At(0), 0);
  EXPECT_DOUBLE_EQ(curve->At(1), 1.0);
  EXPECT_DOUBLE_EQ(curve->At(2), 1.5);
  EXPECT_DOUBLE_EQ(curve->At(4), 2.75);
  EXPECT_DOUBLE_EQ(curve->At(8), 5.0);
}

// scipy.interpolate.PchipInterpolator([1, 2, 4, 8], [1, 1.5, 2.75, 5]) has other slopes at its ends
// only: within the middle interval both are the cubic with the harmonic slopes of Fritsch and
// Butland, 6/11 and 4/7 here.
TEST(TimeCurve, IsTheMonotoneCubicBetweenThem) {
  const auto curve = TimeCurve::Fit({{1, 1.0}, {2, 1.5}, {4, 2.75}, {8, 5.0}});
  ASSERT_TRUE(curve.ok());
  // Chords .5, .625, .5625; weights by lengths 1, 2, 4.
  const double at2 = (5.0 + 4.0) / (5.0 / 0.5 + 4.0 / 0.625);
  const double at4 = (10.0 + 8.0) / (10.0 / 0.625 + 8.0 / 0.5625);
  const double middle = (1.5 + 2.75) / 2 + 2.0 * (at2 - at4) / 8;
  EXPECT_NEAR(curve->At(3), middle, 1e-14);
}

TEST(TimeCurve, IsStraightWherePointsAre) {
  const auto curve = TimeCurve::Fit({{1, 3.0}, {5, 11.0}, {64, 129.0}});
  ASSERT_TRUE(curve.ok());
  for (int64_t b = 1; b <= 64; ++b) {
    EXPECT_NEAR(curve->At(b), 1.0 + 2.0 * static_cast<double>(b), 1e-12);
  }
}

// Times that fall are noise: pooled into their mean. No value between may fall either.
TEST(TimeCurve, NeverFallsNorOvershoots) {
  const auto curve =
      TimeCurve::Fit({{1, 1}, {2, 3}, {4, 2}, {8, 2.5}, {16, 9}, {17, 9}, {40, 8.9}});
  ASSERT_TRUE(curve.ok());
  EXPECT_DOUBLE_EQ(curve->At(2), 2.5);
  EXPECT_DOUBLE_EQ(curve->At(3), 2.5);
  EXPECT_DOUBLE_EQ(curve->At(8), 2.5);
  const double last = (9 + 9 + 8.9) / 3;
  EXPECT_DOUBLE_EQ(curve->At(16), last);
  EXPECT_DOUBLE_EQ(curve->At(40), last);
  for (int64_t b = 1; b <= 40; ++b) EXPECT_GE(curve->At(b), curve->At(b - 1)) << b;
}

TEST(TimeCurve, SeveralTimesOfOneSizeAreTheirMean) {
  const auto curve = TimeCurve::Fit({{2, 1}, {2, 2}, {2, 6}, {3, 4}});
  ASSERT_TRUE(curve.ok());
  EXPECT_DOUBLE_EQ(curve->At(2), 3);
  // Below the smallest: on the line through the first two, but not below proportion.
  EXPECT_DOUBLE_EQ(curve->At(1), 2);
  EXPECT_DOUBLE_EQ(TimeCurve::Fit({{2, 1}, {3, 4}})->At(1), 0.5);
  EXPECT_DOUBLE_EQ(TimeCurve::Fit({{4, 2}})->At(1), 0.5);
}

TEST(TimeCurve, RefusesNonsense) {
  EXPECT_FALSE(TimeCurve::Fit({}).ok());
  EXPECT_FALSE(TimeCurve::Fit({{0, 1.0}}).ok());
  EXPECT_FALSE(TimeCurve::Fit({{1, 0.0}}).ok());
  EXPECT_FALSE(TimeCurve::Fit({{1, 1.0}, {2, -1.0}}).ok());
}

}  // namespace
}  // namespace pando
