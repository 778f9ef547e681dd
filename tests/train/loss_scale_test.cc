#include "train/loss_scale.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/error.h"

namespace pando {
namespace {

TEST(LossScaleTest, DoublesAfterGoodStepsAndHalvesAtOverflow) {
  LossScale scale({.initial = 4, .growth_interval = 3});
  scale.OnGoodStep();
  scale.OnGoodStep();
  EXPECT_EQ(scale.value(), 4);
  scale.OnGoodStep();
  EXPECT_EQ(scale.value(), 8);
  scale.OnGoodStep();
  scale.OnGoodStep();
  EXPECT_TRUE(scale.OnOverflow());  // counting begins anew
  EXPECT_EQ(scale.value(), 4);
  EXPECT_EQ(scale.good_steps(), 0);
  scale.OnGoodStep();
  scale.OnGoodStep();
  EXPECT_EQ(scale.value(), 4);
  scale.OnGoodStep();
  EXPECT_EQ(scale.value(), 8);
}

TEST(LossScaleTest, EndsAtOne) {
  LossScale scale({.initial = 2, .growth_interval = 3});
  EXPECT_TRUE(scale.OnOverflow());
  scale.OnGoodStep();
  EXPECT_FALSE(scale.OnOverflow());
  EXPECT_EQ(scale.value(), 1);
  EXPECT_EQ(scale.good_steps(), 1);
}

TEST(LossScaleTest, StaysANumberWhereNothingEverOverflows) {
  LossScale scale({.initial = 1, .growth_interval = 1});
  for (int i = 0; i < 2000; ++i) scale.OnGoodStep();
  EXPECT_LE(scale.value(), 0x1p60);
  EXPECT_TRUE(scale.OnOverflow());
}

TEST(LossScaleTest, GoesThroughMetadata) {
  LossScale scale({.initial = 0x1p39, .growth_interval = 7});
  for (int i = 0; i < 10; ++i) scale.OnGoodStep();
  std::map<std::string, std::string> metadata = {{"seed", "1"}};
  scale.WriteTo(metadata);
  LossScale read({.initial = 2, .growth_interval = 7});
  ASSERT_TRUE(read.ReadFrom(metadata).ok());
  EXPECT_EQ(read.value(), 0x1p40);
  EXPECT_EQ(read.good_steps(), 3);
  ASSERT_TRUE(read.ReadFrom({{"seed", "1"}}).ok());  // of a run without loss scaling
  EXPECT_EQ(read.value(), 0x1p40);
}

TEST(LossScaleTest, RefusesWhatCantBe) {
  LossScale scale;
  for (const auto& [value, steps] : std::map<std::string, std::string>{{"3", "0"},
                                                                       {"0.5", "0"},
                                                                       {"inf", "0"},
                                                                       {"nan", "0"},
                                                                       {"-2", "0"},
                                                                       {"x", "0"},
                                                                       {"8", "-1"},
                                                                       {"4", "x"},
                                                                       {"", ""}}) {
    EXPECT_EQ(scale.ReadFrom({{"loss-scale", value}, {"loss-scale-good-steps", steps}}).code(),
              absl::StatusCode::kDataLoss)
        << value << " " << steps;
  }
  EXPECT_FALSE(scale.ReadFrom({{"loss-scale", "8"}}).ok());
  EXPECT_FALSE(scale.ReadFrom({{"loss-scale-good-steps", "8"}}).ok());
  EXPECT_EQ(scale.value(), 65536);
  EXPECT_THROW(LossScale({.initial = 3}), InvalidArgument);
  EXPECT_THROW(LossScale({.initial = 0.5}), InvalidArgument);
  EXPECT_THROW(LossScale({.initial = std::numeric_limits<double>::infinity()}), InvalidArgument);
  EXPECT_THROW(LossScale({.growth_interval = 0}), InvalidArgument);
}

}  // namespace
}  // namespace pando
