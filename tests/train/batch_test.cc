#include "train/batch.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "engine/error.h"

namespace pando {
namespace {

using Ids = std::vector<int32_t>;

// Tokens 0, 1, 2, ...: a token says where it stands.
TokenDataset Counting(int64_t count) {
  auto ids = std::make_shared<std::vector<uint16_t>>(count);
  std::iota(ids->begin(), ids->end(), 0);
  return TokenDataset(
      {{.owner = ids, .data = ids->data(), .width = 2, .count = count, .name = "counting"}}, 65536);
}

TEST(FillBatch, TargetsAreTheNextTokens) {
  const TokenDataset data = Counting(1000);
  const TrainingOrder order(3, 1000, 16);
  Ids tokens(80), targets(80);  // [5, 16]
  EXPECT_EQ(FillBatch(data, order, 100, tokens, targets), 80);
  for (int64_t i = 0; i < 80; ++i) {
    EXPECT_EQ(tokens[i], order.At(100 + i / 16).start + i % 16);
    EXPECT_EQ(targets[i], tokens[i] + 1);
  }
}

// A step of 12 samples is the same whether one rank takes it whole or three take uneven parts.
TEST(FillBatch, DoesNotDependOnTheCut) {
  const TokenDataset data = Counting(5000);
  const TrainingOrder order(9, 5000, 32);
  const int64_t row = 32, step = 40, batch = 12;
  Ids whole(batch * row), whole_targets(batch * row);
  FillBatch(data, order, step * batch, whole, whole_targets);
  for (const Ids& cut : {Ids{12}, Ids{1, 7, 4}, Ids{5, 0, 5, 2}}) {
    Ids tokens, targets;
    for (const int32_t n : cut) {
      Ids part(n * row), part_targets(n * row);
      FillBatch(data, order, step * batch + static_cast<int64_t>(tokens.size()) / row, part,
                part_targets);
      tokens.insert(tokens.end(), part.begin(), part.end());
      targets.insert(targets.end(), part_targets.begin(), part_targets.end());
    }
    EXPECT_EQ(tokens, whole);
    EXPECT_EQ(targets, whole_targets);
  }
}

TEST(FillBatch, ShortWindowsArePadded) {
  const TokenDataset data = Counting(7);
  const ValidationOrder order(7, 4);
  Ids tokens(12, 99), targets(12, 99);  // [3, 4]
  EXPECT_EQ(FillBatch(data, order, 0, tokens, targets), 6);
  EXPECT_EQ(tokens, (Ids{0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(targets, (Ids{1, 2, 3, 4, 5, 6, -1, -1, -1, -1, -1, -1}));
}

TEST(FillBatch, RefusesOddSizes) {
  const TokenDataset data = Counting(100);
  const ValidationOrder order(100, 8);
  Ids eight(8), nine(9), sixteen(16);
  EXPECT_THROW(FillBatch(data, order, 0, nine, nine), InvalidArgument);
  EXPECT_THROW(FillBatch(data, order, 0, eight, sixteen), InvalidArgument);
}

}  // namespace
}  // namespace pando
