#include "train/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "engine/error.h"

namespace pando {
namespace {

// Upper bound of a chi-square variable with `freedom` degrees, passed with a probability of about
// 1e-6 (Wilson and Hilferty 1931, z = 4.75).
double ChiSquareBound(double freedom) {
  const double a = 2.0 / (9.0 * freedom);
  return freedom * std::pow(1.0 - a + 4.75 * std::sqrt(a), 3.0);
}

double ChiSquare(const std::vector<int64_t>& counts, double expected) {
  double sum = 0;
  for (const int64_t c : counts) {
    const double d = static_cast<double>(c) - expected;
    sum += d * d / expected;
  }
  return sum;
}

TEST(Permutation, IsOneForEverySize) {
  for (int64_t size = 1; size <= 300; ++size) {
    const Permutation p(7, size);
    std::vector<bool> seen(size);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t to = p.At(size % 3, i);
      ASSERT_GE(to, 0);
      ASSERT_LT(to, size);
      ASSERT_FALSE(seen[to]) << size;
      seen[to] = true;
    }
  }
}

TEST(Permutation, LargeSizesStayWithinAndDoNotCollide) {
  for (const int64_t size : {int64_t{1} << 32, (int64_t{1} << 40) + 12345, INT64_MAX}) {
    const Permutation p(1, size);
    std::vector<int64_t> to;
    for (int64_t i = 0; i < 20000; ++i) {
      to.push_back(p.At(0, i));
      to.push_back(p.At(0, size - 1 - i));
    }
    std::sort(to.begin(), to.end());
    EXPECT_TRUE(std::adjacent_find(to.begin(), to.end()) == to.end());
    EXPECT_GE(to.front(), 0);
    EXPECT_LT(to.back(), size);
    // 40000 values: the extremes lie within 1/2000 of the ends but with a probability of e^-20.
    EXPECT_LT(to.front(), size / 2000);
    EXPECT_GT(to.back(), size - size / 2000);
  }
}

// Over many streams each of the 5! orders of five things comes equally often.
TEST(Permutation, OrdersOfFiveAreEquallyLikely) {
  constexpr int64_t kStreams = int64_t{120} * 200;
  const Permutation p(3, 5);
  std::map<std::vector<int64_t>, int64_t> counts;
  for (int64_t s = 0; s < kStreams; ++s) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 5; ++i) order.push_back(p.At(s, i));
    ++counts[order];
  }
  ASSERT_EQ(counts.size(), 120u);
  std::vector<int64_t> values;
  values.reserve(counts.size());
  for (const auto& [order, count] : counts) values.push_back(count);
  EXPECT_LT(ChiSquare(values, 200), ChiSquareBound(119));
}

// In one permutation of a larger set: where i goes, and how far from i + 1, is uniform.
TEST(Permutation, PlacesAndDistancesAreUniform) {
  constexpr int64_t kSize = 1'000'003, kBins = 500;
  const Permutation p(11, kSize);
  std::vector<int64_t> joint(kBins), distance(kBins);
  int64_t before = p.At(5, 0);
  for (int64_t i = 1; i < kSize; ++i) {
    const int64_t to = p.At(5, i);
    // Coarse bins of (i, place) together: 20 of i by 25 of place.
    ++joint[i * 20 / kSize * 25 + to * 25 / kSize];
    ++distance[(to - before + kSize) % kSize * kBins / kSize];
    before = to;
  }
  EXPECT_LT(ChiSquare(joint, kSize / 500.0), ChiSquareBound(kBins - 1));
  EXPECT_LT(ChiSquare(distance, kSize / 500.0), ChiSquareBound(kBins - 1));
}

// Every epoch visits disjoint windows that lie in the data, all at one offset, each once; what it
// leaves out is less than two windows.
TEST(TrainingOrder, EpochsCoverTheData) {
  for (const int64_t context : {1, 2, 7, 16}) {
    for (int64_t tokens = context + 1; tokens < 6 * context + 3; ++tokens) {
      const TrainingOrder order(42, tokens, context);
      for (int64_t epoch = 0; epoch < 4; ++epoch) {
        std::vector<int> uses(tokens);
        int64_t phase = -1;
        for (int64_t i = 0; i < order.windows(); ++i) {
          const SampleWindow w = order.At(epoch * order.windows() + i);
          ASSERT_EQ(w.targets, context);
          ASSERT_GE(w.start, 0);
          ASSERT_LE(w.start + context + 1, tokens);
          if (phase < 0) phase = w.start % context;
          ASSERT_EQ(w.start % context, phase);
          for (int64_t t = 0; t < context; ++t) ASSERT_EQ(uses[w.start + t]++, 0);
        }
        ASSERT_LT(std::count(uses.begin(), uses.end(), 0), 2 * context + (context == 1));
      }
    }
  }
}

TEST(TrainingOrder, EveryOffsetComes) {
  const TrainingOrder order(1, 1000, 10);
  std::vector<int64_t> counts(10);
  for (int64_t epoch = 0; epoch < 10000; ++epoch) {
    ++counts[order.At(epoch * order.windows()).start % 10];
  }
  EXPECT_LT(ChiSquare(counts, 1000), ChiSquareBound(9));
}

TEST(TrainingOrder, DependsOnSeedAndSampleAlone) {
  const TrainingOrder a(1, 100000, 32), b(1, 100000, 32), c(2, 100000, 32);
  int same = 0;
  for (const int64_t g : {int64_t{0}, int64_t{5}, a.windows(), int64_t{1} << 40}) {
    EXPECT_EQ(a.At(g).start, b.At(g).start);
    same += a.At(g).start == c.At(g).start;
  }
  EXPECT_LT(same, 2);
  EXPECT_NE(a.At(0).start, a.At(a.windows()).start);  // another epoch, another order
}

// Values of a second implementation, tools/golden/sample_order.py. A resumed run relies on the
// order: a change of it must be meant.
TEST(TrainingOrder, IsPinned) {
  struct Case {
    uint64_t seed;
    int64_t tokens, context;
    std::vector<int64_t> starts;
  };
  const Case cases[] = {
      {1, 1000, 16, {550, 518, 742, 177, 163}},
      {1337, 1003854, 256, {841483, 341515, 22795, 900875, 661358}},
      {(1ull << 63) + 5,
       9'000'000'000'000,
       4096,
       {5583986272862, 2144329230942, 6853601000030, 1536302471774, 2173575296867}}};
  for (const Case& c : cases) {
    const TrainingOrder order(c.seed, c.tokens, c.context);
    std::vector<int64_t> starts;
    for (const int64_t g : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{1000}, int64_t{1} << 40}) {
      starts.push_back(order.At(g).start);
    }
    EXPECT_EQ(starts, c.starts);
  }
}

TEST(TrainingOrder, LargeData) {
  const int64_t tokens = int64_t{9'000'000'000'000};
  const TrainingOrder order(1, tokens, 4096);
  std::vector<int64_t> starts;
  for (int64_t g = 0; g < 10000; ++g) starts.push_back(order.At(g).start);
  std::sort(starts.begin(), starts.end());
  EXPECT_TRUE(std::adjacent_find(starts.begin(), starts.end()) == starts.end());
  EXPECT_GE(starts.front(), 0);
  EXPECT_LT(starts.front(), tokens / 500);
  EXPECT_LE(starts.back() + 4097, tokens);
  EXPECT_GT(starts.back(), tokens - tokens / 500);
}

TEST(TrainingOrder, RefusesTooShortData) {
  EXPECT_THROW(TrainingOrder(1, 16, 16), InvalidArgument);
  EXPECT_THROW(TrainingOrder(1, 16, 0), InvalidArgument);
  EXPECT_EQ(TrainingOrder(1, 17, 16).At(3).start, 0);
}

TEST(ValidationOrder, EveryTargetCountsOnce) {
  for (int64_t tokens = 0; tokens < 40; ++tokens) {
    const ValidationOrder order(tokens, 8);
    int64_t next = 0;
    for (int64_t i = 0; i < order.windows() + 3; ++i) {
      const SampleWindow w = order.At(i);
      EXPECT_EQ(w.targets > 0, i < order.windows());
      if (w.targets == 0) continue;
      EXPECT_EQ(w.start, next);
      next += w.targets;
    }
    EXPECT_EQ(next, std::max<int64_t>(0, tokens - 1));
  }
}

TEST(ValidationOrder, StopsWhereTold) {
  EXPECT_EQ(ValidationOrder(1000, 10).windows(), 100);
  EXPECT_EQ(ValidationOrder(1000, 10, 7).windows(), 7);
  EXPECT_EQ(ValidationOrder(1000, 10, 7).At(7).targets, 0);
  EXPECT_EQ(ValidationOrder(1000, 10, 5000).windows(), 100);
  EXPECT_THROW(ValidationOrder(10, 0), InvalidArgument);
}

}  // namespace
}  // namespace pando
