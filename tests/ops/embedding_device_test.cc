// What the table of operations cannot see of the embedding's kernels, on whichever device is
// linked: the order of sums, many tokens and many of one kind, tokens outside the vocabulary, data
// that are not aligned.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/kernel_tables.h"
#include "tests/ops/device_array.h"
#include "tests/samples.h"

namespace pando {
namespace {

/// Most uses of a row of the table, or of a position, that are summed one after the other on every
/// device.
constexpr int64_t kInOrder = 32;

template <typename T>
struct Problem {
  Problem(std::vector<int32_t> ids, int64_t vocab, int64_t cols, int64_t length = 1)
      : tokens(std::move(ids)), vocab(vocab), cols(cols), length(length) {}

  int64_t count() const { return static_cast<int64_t>(tokens.size()); }
  bool IsToken(int64_t n) const { return tokens[n] >= 0 && tokens[n] < vocab; }

  /// Backward on the device, onto `before`.
  void Run(int64_t shift) {
    const EmbeddingKernels& kernels = embedding_kernels.For(TestDevice());
    DeviceArray<int32_t> ids(tokens);
    DeviceArray<T> rows(dout, shift);
    DeviceArray<float> table(before, shift), positions(positions_before, shift);
    Tensor scratch = DeviceScratch(kernels.backward_scratch(count(), vocab));
    LaunchOnTestDevice(kernels.backward,
                       EmbeddingBackwardArgs{ids.data(), rows.data(), table.data(),
                                             positions.data(), DTypeOf<T>::value, count(), vocab,
                                             cols, length, offset, scratch.mutable_data()});
    dtable = table.Values();
    dpositions = positions.Values();
  }

  /// The same sums one after the other, in C.
  template <typename C>
  void SumInOrder(std::vector<C>& table, std::vector<C>& positions) const {
    table.assign(before.begin(), before.end());
    positions.assign(positions_before.begin(), positions_before.end());
    for (int64_t n = 0; n < count(); ++n) {
      if (!IsToken(n)) continue;
      for (int64_t c = 0; c < cols; ++c) {
        table[tokens[n] * cols + c] += ToFloat(dout[n * cols + c]);
        positions[(n % length + offset) * cols + c] += ToFloat(dout[n * cols + c]);
      }
    }
  }

  std::vector<int32_t> tokens;
  int64_t vocab, cols, length;
  int64_t offset = 2;
  std::vector<T> dout = Samples<T>(count() * cols);
  std::vector<float> before = Samples<float>(vocab * cols, 5000);
  std::vector<float> positions_before = Samples<float>((offset + length) * cols, 6000);
  std::vector<float> dtable, dpositions;
};

/// n tokens of [0, vocab), in no order.
std::vector<int32_t> Scattered(int64_t n, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<int32_t>((i * 7919 + i / vocab) % vocab));
  }
  return tokens;
}

template <typename T>
class EmbeddingDeviceTest : public testing::Test {};
using Types = testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(EmbeddingDeviceTest, Types);

// As documented, so to the bit.
TYPED_TEST(EmbeddingDeviceTest, SumsAFewUsesInTheOrderOfTokens) {
  // 300 tokens of 17 kinds in 20 sequences; 32 uses of each of 5 kinds; vocabularies of one, two
  // and three digits of the sort.
  Problem<TypeParam> problems[] = {{Scattered(300, 17), 17, 37, 15},
                                   {Scattered(5 * kInOrder, 5), 5, 264, 5},
                                   {Scattered(1, 1), 1, 1, 1},
                                   {Scattered(900, 257), 257, 8, 300},
                                   {Scattered(600, 70000), 70000, 8, 600}};
  for (Problem<TypeParam>& p : problems) {
    std::vector<float> table, positions;
    p.SumInOrder(table, positions);
    for (const int64_t shift : {0, 1}) {
      p.Run(shift);
      PANDO_EXPECT_SAME_BITS(p.dtable, table);
      PANDO_EXPECT_SAME_BITS(p.dpositions, positions);
    }
  }
}

// Sums of terms up to 1 of so many uses: some roundings at the size of their number's root.
template <typename T>
void ExpectSums(Problem<T>& p, double uses) {
  std::vector<double> table, positions;
  p.SumInOrder(table, positions);
  p.Run(0);
  ExpectClose(p.dtable, table, 16, 2 * std::sqrt(uses));
  ExpectClose(p.dpositions, positions, 16, 2 * std::sqrt(uses));
  const std::vector<float> once = p.dtable, positions_once = p.dpositions;
  p.Run(0);
  PANDO_EXPECT_SAME_BITS(p.dtable, once);
  PANDO_EXPECT_SAME_BITS(p.dpositions, positions_once);
}

TYPED_TEST(EmbeddingDeviceTest, SumsManyUses) {
  Problem<TypeParam> equal(std::vector<int32_t>(5000, 3), 7, 12, 2);
  ExpectSums(equal, 5000);
  // One kind is every other token, the rest are scattered; all at one position.
  Problem<TypeParam> mixed(Scattered(3001, 601), 601, 9, 1);
  for (size_t n = 0; n < mixed.tokens.size(); n += 2) mixed.tokens[n] = 300;
  ExpectSums(mixed, 3001);
  Problem<TypeParam> just_too_many(std::vector<int32_t>(kInOrder + 1, 0), 1, 8, 1);
  ExpectSums(just_too_many, kInOrder + 1);
}

TEST(ManyTokensDeviceTest, SumsMoreThan64KiTokens) {
  constexpr int64_t kCount = (1 << 16) + 77;
  Problem<float> scattered(Scattered(kCount, 50257), 50257, 3, 4096);
  ExpectSums(scattered, 17);
  Problem<float> equal(std::vector<int32_t>(kCount, 50256), 50257, 1, kCount);
  ExpectSums(equal, kCount);
}

TYPED_TEST(EmbeddingDeviceTest, LeavesOutTokensOutsideTheVocabulary) {
  for (const int32_t bad : {17, -1, 1 << 30, INT32_MIN, INT32_MAX}) {
    Problem<TypeParam> p(Scattered(100, 17), 17, 5, 50);
    for (size_t n = 1; n < 100; n += 3) p.tokens[n] = bad;
    std::vector<float> table, positions;
    p.SumInOrder(table, positions);
    p.Run(0);
    PANDO_EXPECT_SAME_BITS(p.dtable, table);
    PANDO_EXPECT_SAME_BITS(p.dpositions, positions);
  }
}

TYPED_TEST(EmbeddingDeviceTest, ForwardReportsTokensOutsideTheVocabulary) {
  using T = TypeParam;
  constexpr int64_t kCols = 24, kLength = 3, kOffset = 2;
  const std::vector<T> table = Samples<T>(5 * kCols);
  const std::vector<T> positions = Samples<T>((kOffset + kLength) * kCols, 1000);
  for (const int32_t bad : {2, 5, -1, INT32_MAX}) {  // 2 is none
    for (const int64_t shift : {0, 1}) {
      const std::vector<int32_t> tokens = {4, bad, 0, 3, 3, 1};
      DeviceArray<int32_t> ids(tokens), flag(std::vector<int32_t>{4});
      DeviceArray<T> t(table, shift), p(positions, shift), out(6 * kCols, shift);
      for (const bool with_positions : {false, true}) {
        LaunchOnTestDevice(
            embedding_kernels.For(TestDevice()).forward,
            EmbeddingForwardArgs{ids.data(), t.data(), with_positions ? p.data() : nullptr,
                                 out.data(), flag.data(), DTypeOf<T>::value, 6, 5, kCols, kLength,
                                 kOffset});
        const std::vector<T> got = out.Values();
        for (int64_t i = 0; i < 6 * kCols; ++i) {
          const int64_t n = i / kCols, c = i % kCols;
          const bool valid = tokens[n] >= 0 && tokens[n] < 5;
          float want = valid ? ToFloat(table[tokens[n] * kCols + c]) : 0;
          if (valid && with_positions) {
            want += ToFloat(positions[(n % kLength + kOffset) * kCols + c]);
          }
          ASSERT_EQ(ToFloat(got[i]), ToFloat(RoundTo<T>(want))) << bad << " at " << i;
        }
        EXPECT_EQ(flag.Values()[0], bad == 2 ? 4 : 5);
      }
    }
  }
}

}  // namespace
}  // namespace pando
