#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/kernels/copy.h"
#include "tests/isa_tables.h"
#include "tests/samples.h"

namespace pando {
namespace {

class IntegerCastTest : public testing::TestWithParam<IsaTable<CopyKernels>> {
 protected:
  template <typename Y, typename X>
  std::vector<Y> Cast(const std::vector<X>& x) const {
    std::vector<Y> y(x.size());
    GetParam().table->integer_cast(
        {y.data(), DTypeOf<Y>::value, x.data(), DTypeOf<X>::value, static_cast<int64_t>(x.size())},
        nullptr);
    return y;
  }

  template <typename X>
  void CheckTruncation(const std::vector<double>& values, const std::vector<int32_t>& i32,
                       const std::vector<int64_t>& i64) const {
    std::vector<X> x;
    x.reserve(values.size());
    for (const double v : values) x.push_back(RoundTo<X>(static_cast<ComputeType<X>>(v)));
    EXPECT_EQ((Cast<int32_t, X>(x)), i32);
    EXPECT_EQ((Cast<int64_t, X>(x)), i64);
  }
};

const double kInf = std::numeric_limits<double>::infinity();

TEST_P(IntegerCastTest, TowardsZeroAndSaturating) {
  const std::vector<double> small = {0, -0.0, 0.75, -0.75, 1.5, -2.5, 1000, kInf, -kInf, NAN};
  const std::vector<int32_t> i32 = {0, 0, 0, 0, 1, -2, 1000, INT32_MAX, INT32_MIN, 0};
  const std::vector<int64_t> i64 = {0, 0, 0, 0, 1, -2, 1000, INT64_MAX, INT64_MIN, 0};
  CheckTruncation<Float16>(small, i32, i64);
  CheckTruncation<BFloat16>(small, i32, i64);
  CheckTruncation<float>(small, i32, i64);
  CheckTruncation<double>(small, i32, i64);
  const std::vector<double> large = {0x1p31, -0x1p31, 0x1p40, -0x1p40, 0x1p63, -0x1p63};
  const std::vector<int32_t> large_i32 = {INT32_MAX, INT32_MIN, INT32_MAX,
                                          INT32_MIN, INT32_MAX, INT32_MIN};
  const std::vector<int64_t> large_i64 = {int64_t{1} << 31, -(int64_t{1} << 31),
                                          int64_t{1} << 40, -(int64_t{1} << 40),
                                          INT64_MAX,        INT64_MIN};
  CheckTruncation<BFloat16>(large, large_i32, large_i64);
  CheckTruncation<float>(large, large_i32, large_i64);
  CheckTruncation<double>(large, large_i32, large_i64);
  EXPECT_EQ((Cast<int32_t, double>({2147483646.9, -2147483648.9})),
            (std::vector<int32_t>{2147483646, INT32_MIN}));
}

TEST_P(IntegerCastTest, ToNearestEven) {
  EXPECT_EQ((Cast<float, int32_t>({0, -1, (1 << 24) + 1, (1 << 24) + 3, INT32_MIN})),
            (std::vector<float>{0, -1, 0x1p24f, 0x1p24f + 4, -0x1p31f}));
  EXPECT_EQ((Cast<double, int64_t>({-5, (int64_t{1} << 53) + 1, INT64_MIN})),
            (std::vector<double>{-5, 0x1p53, -0x1p63}));
  EXPECT_EQ((Cast<float, int64_t>({(int64_t{1} << 60) + (int64_t{1} << 36),
                                   (int64_t{1} << 60) + (int64_t{1} << 36) + 1})),
            (std::vector<float>{0x1p60f, 0x1p60f + 0x1p37f}));
}

TEST_P(IntegerCastTest, ToSixteenBitsWithOneRounding) {
  // Half way between two bf16 (8 bits of significand) and one more, which an f32 (24 bits) and even
  // an f64 (53 bits) cannot tell from half way.
  const int64_t step = int64_t{1} << 55;
  const int64_t base = int64_t{1} << 62;
  const auto y = Cast<BFloat16, int64_t>(
      {base + step / 2, base + step / 2 + 1, base + step / 2 - 1, -base - step / 2 - 1, 257, 258});
  const std::vector<double> want = {0x1p62, 0x1p62 + 0x1p55, 0x1p62, -0x1p62 - 0x1p55, 256, 258};
  EXPECT_EQ(Doubles(y), want);
  EXPECT_EQ(Doubles(Cast<Float16, int32_t>({2049, 2051, 65519, 65520, -70000, INT32_MAX})),
            (std::vector<double>{2048, 2052, 65504, kInf, -kInf, kInf}));
}

TEST_P(IntegerCastTest, BetweenIntegers) {
  EXPECT_EQ((Cast<int64_t, int32_t>({-1, INT32_MIN, INT32_MAX})),
            (std::vector<int64_t>{-1, INT32_MIN, INT32_MAX}));
  EXPECT_EQ((Cast<int32_t, int64_t>({-1, (int64_t{5} << 32) + 7, INT32_MIN})),
            (std::vector<int32_t>{-1, 7, INT32_MIN}));
}

TEST_P(IntegerCastTest, ManyElementsAndNone) {
  std::vector<float> x(70001);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(Sample(static_cast<int64_t>(i), 1e6));
  const auto y = Cast<int64_t, float>(x);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], std::trunc(x[i]));
  EXPECT_TRUE((Cast<int32_t, BFloat16>({})).empty());
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(IntegerCastTest, CopyKernels, kCopyKernels);

}  // namespace pando
