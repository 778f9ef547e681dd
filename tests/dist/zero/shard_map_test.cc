#include "dist/zero/shard_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/error.h"

namespace pando {
namespace {

using ::testing::ElementsAre;

TEST(ShardMap, CutsAtMultiplesOf128) {
  EXPECT_THAT(ShardMap::FromShares(1280, {0.5, 0.25, 0.25}).cuts(),
              ElementsAre(0, 640, 1024, 1280));
  EXPECT_THAT(ShardMap::Even(1280, 3).cuts(), ElementsAre(0, 384, 896, 1280));
  EXPECT_THAT(ShardMap::FromShares(1280, {0, 3, 0}).cuts(), ElementsAre(0, 0, 1280, 1280));
  EXPECT_THAT(ShardMap::FromShares(128, {1, 1}).cuts(), ElementsAre(0, 128, 128));
  EXPECT_THAT(ShardMap::Even(0, 2).cuts(), ElementsAre(0, 0, 0));
}

// Whatever the shares: every element once, and nobody off by more than a cut's half.
TEST(ShardMap, CoversEverythingOnce) {
  std::mt19937 draw(1);
  for (int i = 0; i < 1000; ++i) {
    const int64_t size = 128 * static_cast<int64_t>(draw() % 1000);
    std::vector<double> shares(1 + draw() % 9);
    double sum = 0;
    for (double& s : shares) sum += s = draw() % 3 == 0 ? 0 : static_cast<double>(draw() % 100);
    if (sum == 0) continue;
    const ShardMap map = ShardMap::FromShares(size, shares);
    int64_t at = 0;
    for (int r = 0; r < map.ranks(); ++r) {
      EXPECT_EQ(map.Of(r).begin, at);
      at = map.Of(r).end;
      const double want = static_cast<double>(size) * shares[static_cast<size_t>(r)] / sum;
      EXPECT_NEAR(static_cast<double>(map.Of(r).size()), want, 128);
      if (shares[static_cast<size_t>(r)] == 0) {
        EXPECT_EQ(map.Of(r).size(), 0);
      }
    }
    EXPECT_EQ(at, size);
  }
}

TEST(ShardMap, CountsOfAnInterval) {
  const ShardMap map({0, 256, 256, 1024});
  EXPECT_THAT(map.Counts({128, 384}), ElementsAre(128, 0, 128));
  EXPECT_THAT(map.Counts({512, 512}), ElementsAre(0, 0, 0));
  EXPECT_THAT(map.Counts({0, 1024}), ElementsAre(256, 0, 768));
}

TEST(ShardMap, RefusesNonsense) {
  EXPECT_THROW(ShardMap({0, 100}), InvalidArgument);
  EXPECT_THROW(ShardMap({0, 256, 128}), InvalidArgument);
  EXPECT_THROW(ShardMap({128, 256}), InvalidArgument);
  EXPECT_THROW(ShardMap::FromShares(1280, {0, 0}), InvalidArgument);
  EXPECT_THROW(ShardMap::FromShares(1280, {1, -1}), InvalidArgument);
  EXPECT_THROW(ShardMap::FromShares(1280, {1, NAN}), InvalidArgument);
}

}  // namespace
}  // namespace pando
