// What the table of operations cannot see of the basic kernels, on whichever device is linked:
// integers, special values, sums long enough to be cut, grids that a launch does not cover at once,
// data that are not aligned.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/tensor.h"
#include "ops/arithmetic.h"
#include "ops/kernel_tables.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "ops/strided.h"
#include "tests/ops/naive.h"
#include "tests/samples.h"
#include "tests/test_device.h"

namespace pando {
namespace {

const float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

template <typename T>
Tensor OnDevice(const std::vector<T>& values, Shape shape) {
  return Tensor::FromHost(values, std::move(shape), TestDevice(), "test");
}

template <typename T>
Tensor OnDevice(const std::vector<T>& values) {
  return OnDevice(values, {static_cast<int64_t>(values.size())});
}

template <typename Args>
void Launch(Kernel<Args> kernel, const Args& args) {
  TestDevice().current_stream().Launch(kernel, args);
}

template <typename Y, typename X>
std::vector<Y> CastTo(const std::vector<X>& x) {
  return Cast(OnDevice(x), DTypeOf<Y>::value).template ToHost<Y>();
}

TEST(BasicDeviceTest, FloatsToIntegers) {
  const std::vector<float> x = {0,       -0.0f,    0.75f,   -0.75f,   1.5f,    -2.5f,
                                1000,    kInf,     -kInf,   kNaN,     0x1p31f, -0x1p31f,
                                0x1p40f, -0x1p40f, 0x1p63f, -0x1p63f, 16777215};
  EXPECT_EQ(
      (CastTo<int32_t, float>(x)),
      (std::vector<int32_t>{0, 0, 0, 0, 1, -2, 1000, INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MIN,
                            INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 16777215}));
  EXPECT_EQ((CastTo<int64_t, float>(x)),
            (std::vector<int64_t>{0, 0, 0, 0, 1, -2, 1000, INT64_MAX, INT64_MIN, 0,
                                  int64_t{1} << 31, -(int64_t{1} << 31), int64_t{1} << 40,
                                  -(int64_t{1} << 40), INT64_MAX, INT64_MIN, 16777215}));
  EXPECT_EQ((CastTo<int32_t, double>({2147483646.9, -2147483648.9, NAN})),
            (std::vector<int32_t>{2147483646, INT32_MIN, 0}));
  const std::vector<Float16> halves = {ToFloat16(kInf), ToFloat16(-1.5f), ToFloat16(kNaN)};
  EXPECT_EQ((CastTo<int32_t, Float16>(halves)), (std::vector<int32_t>{INT32_MAX, -1, 0}));
}

TEST(BasicDeviceTest, IntegersToFloats) {
  EXPECT_EQ((CastTo<float, int32_t>({0, -1, (1 << 24) + 1, (1 << 24) + 3, INT32_MIN})),
            (std::vector<float>{0, -1, 0x1p24f, 0x1p24f + 4, -0x1p31f}));
  EXPECT_EQ((CastTo<double, int64_t>({-5, (int64_t{1} << 53) + 1, INT64_MIN})),
            (std::vector<double>{-5, 0x1p53, -0x1p63}));
  // Half way between two bf16 and one more, which no f64 can tell from half way.
  const int64_t half = (int64_t{1} << 62) + (int64_t{1} << 54);
  EXPECT_EQ(Doubles(CastTo<BFloat16, int64_t>({half, half + 1, half - 1, -half - 1, 257, 258})),
            (std::vector<double>{0x1p62, 0x1p62 + 0x1p55, 0x1p62, -0x1p62 - 0x1p55, 256, 258}));
  EXPECT_EQ(Doubles(CastTo<Float16, int32_t>({2049, 2051, 65519, 65520, -70000})),
            (std::vector<double>{2048, 2052, 65504, kInf, -kInf}));
}

TEST(BasicDeviceTest, BetweenIntegers) {
  EXPECT_EQ((CastTo<int64_t, int32_t>({-1, INT32_MIN, INT32_MAX})),
            (std::vector<int64_t>{-1, INT32_MIN, INT32_MAX}));
  EXPECT_EQ((CastTo<int32_t, int64_t>({-1, (int64_t{5} << 32) + 7, INT32_MIN})),
            (std::vector<int32_t>{-1, 7, INT32_MIN}));
}

// Values that no f64 holds, compared, chosen and moved.
TEST(BasicDeviceTest, LongIntegersStayExact) {
  const int64_t big = (int64_t{1} << 60) + 1;
  const Tensor a = OnDevice<int64_t>({big, -big, 3}, {3, 1});
  const Tensor b = OnDevice<int64_t>({big, big + 1, 3, -big}, {1, 4});
  EXPECT_EQ(Equal(a, b).ToHost<int32_t>(),
            (std::vector<int32_t>{1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0}));
  const Tensor less = Less(a, b);
  EXPECT_EQ(less.ToHost<int32_t>(), (std::vector<int32_t>{0, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(Where(less, a, b).ToHost<int64_t>(),
            (std::vector<int64_t>{big, big, 3, -big, -big, -big, -big, -big, 3, 3, 3, -big}));
  EXPECT_EQ(Transpose(Concat({a, a}, 1)).ToHost<int64_t>(),
            (std::vector<int64_t>{big, -big, 3, big, -big, 3}));
}

// The maximum and its place among `terms`, as a row (along) and as a column among 40 (across).
void ExpectMax(const std::vector<float>& terms, int64_t want) {
  const auto n = static_cast<int64_t>(terms.size());
  std::vector<float> columns;
  for (const float v : terms) columns.insert(columns.end(), 40, v);
  const Tensor across = OnDevice(columns, {n, 40});
  const Tensor along = OnDevice(terms, {1, n});
  for (const Tensor& x : {along, across}) {
    const ReduceIndex<1> index = ReduceOver(x.shape().dims(), {x.dim(0) == 1 ? 1 : 0});
    const int64_t outputs = Count(index.kept);
    Tensor y = Tensor::Empty({outputs}, DType::kF32, TestDevice(), "maxima");
    Tensor arg = Tensor::Empty({outputs}, DType::kI64, TestDevice(), "places");
    Launch(reduce_kernels.For(TestDevice()).max,
           MaxArgs{DType::kF32, x.data(), y.mutable_data(), arg.mutable_data<int64_t>(), index});
    EXPECT_EQ(arg.ToHost<int64_t>(), std::vector<int64_t>(outputs, want));
    for (const float v : y.ToHost<float>()) {
      const float wanted = n == 0 ? -kInf : terms[want];
      EXPECT_TRUE(v == wanted || (std::isnan(v) && std::isnan(wanted))) << v << ", not " << wanted;
    }
  }
}

TEST(BasicDeviceTest, MaximaAreTheFirstAndNaNIsTheGreatest) {
  ExpectMax({1, kNaN, 3, kNaN}, 1);
  ExpectMax({-kInf, -kInf, -kInf, -kInf}, 0);
  ExpectMax({kInf, 2, kInf, 1}, 0);
  ExpectMax({-kInf, -1, -2, -1}, 1);
  ExpectMax({}, 0);
  // More terms than threads, the maximum met by several of them.
  std::vector<float> terms(2003);
  for (size_t i = 0; i < terms.size(); ++i) terms[i] = static_cast<float>(i * 7 % 5);
  ExpectMax(terms, 2);  // 14 % 5
  terms[1999] = kNaN;
  terms[1777] = kNaN;
  ExpectMax(terms, 1777);
}

TEST(BasicDeviceTest, ReluAndExtremesKeepNaN) {
  const Tensor x = OnDevice<float>({kNaN, -1, 2, kNaN});
  const Tensor y = OnDevice<float>({0, kNaN, 3, kNaN});
  const auto is_nan = [](const Tensor& t) {
    std::vector<bool> nan;
    for (const float v : t.ToHost<float>()) nan.push_back(std::isnan(v));
    return nan;
  };
  EXPECT_EQ(is_nan(Relu(x)), (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(is_nan(Maximum(x, y)), (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(is_nan(Minimum(x, y)), (std::vector<bool>{true, true, false, true}));
}

template <typename T>
void CheckSums(const Sizes& dims, int64_t over, bool accumulate) {
  const std::vector<T> x = Samples<T>(Numel(dims));
  const ReduceIndex<1> index = ReduceOver(dims, {over});
  const int64_t outputs = Count(index.kept);
  const int64_t reduced = Count(index.reduced);
  const std::vector<float> before = Samples<float>(outputs, 77);
  Tensor y = OnDevice(before);
  const int64_t scratch = SumScratch(outputs, reduced);
  Tensor parts = Tensor::Empty({scratch}, DType::kF64, TestDevice(), "scratch");
  Launch(reduce_kernels.For(TestDevice()).sum,
         SumArgs{DTypeOf<T>::value,
                 OnDevice(x).data(),
                 index,
                 {y.mutable_data(), DType::kF32, accumulate, 2.0, parts.mutable_data<double>()}});
  NaiveSums want(outputs);
  const int64_t inner = Numel(Sizes(dims.begin() + over + 1, dims.end()));
  for (int64_t i = 0; i < Numel(dims); ++i) {
    want.Add(i / inner / dims[over] * inner + i % inner, ToFloat(x[i]) / 2);
  }
  for (int64_t i = 0; accumulate && i < outputs; ++i) want.Add(i, before[i]);
  ExpectSums<T>(y.ToHost<float>(), want);
}

TEST(BasicDeviceTest, LongSums) {
  // In parts along rows and across them; with few outputs, whole and broken pieces.
  const std::pair<Sizes, int64_t> cases[] = {{{300001}, 0},   {{2, 150001}, 1},  {{150001, 2}, 0},
                                             {{5000, 60}, 0}, {{7001, 72}, 0},   {{20, 131080}, 1},
                                             {{4100, 33}, 1}, {{3, 9000, 16}, 1}};
  for (const auto& [dims, over] : cases) {
    CheckSums<float>(dims, over, false);
    CheckSums<BFloat16>(dims, over, true);
  }
  CheckSums<double>({140001}, 0, true);
}

// Past 2^24, where an f32 that counts stands still: along one row, and across.
TEST(BasicDeviceTest, SumsOfOnesAreExact) {
  constexpr int64_t kMany = (int64_t{1} << 24) + 3;
  const Tensor one = OnDevice<float>({1});
  const ReduceIndex<1> along = {{1, {1}, {}}, {1, {kMany}, {}}};
  const ReduceIndex<1> across = {{1, {20}, {}}, {1, {kMany / 16}, {}}};
  for (const ReduceIndex<1>& index : {along, across}) {
    const int64_t outputs = Count(index.kept);
    Tensor y = Tensor::Empty({outputs}, DType::kF64, TestDevice(), "sums");
    Tensor parts = Tensor::Empty({SumScratch(outputs, Count(index.reduced))}, DType::kF64,
                                 TestDevice(), "scratch");
    Launch(reduce_kernels.For(TestDevice()).sum,
           SumArgs{DType::kF32,
                   one.data(),
                   index,
                   {y.mutable_data(), DType::kF64, false, 1, parts.mutable_data<double>()}});
    EXPECT_EQ(y.ToHost<double>(),
              std::vector<double>(outputs, static_cast<double>(Count(index.reduced))));
  }
}

TEST(BasicDeviceTest, SumsOfNothing) {
  const Tensor y = Sum(Tensor::Empty({0, 3}, DType::kF32, TestDevice(), "nothing"), {0});
  EXPECT_EQ(y.ToHost<float>(), std::vector<float>(3, 0));
  for (const float v :
       Mean(Tensor::Empty({3, 0}, DType::kF32, TestDevice(), "nothing"), {1}).ToHost<float>()) {
    EXPECT_TRUE(std::isnan(v));
  }
}

// More tiles, and more pieces, than a grid has blocks.
TEST(BasicDeviceTest, GridsGoOn) {
  constexpr int64_t kBoxes = 16387;
  const std::vector<BFloat16> x = Samples<BFloat16>(kBoxes * 16 * 17);
  const auto y = Permute(OnDevice(x, {kBoxes, 16, 17}), {0, 2, 1}).ToHost<BFloat16>();
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    const int64_t at = i / 272 * 272 + i % 17 * 16 + i % 272 / 17;
    ASSERT_EQ(y[at].bits, x[i].bits) << i;
  }
  constexpr int64_t kMany = int64_t{16384} * 256 * 4 + 5;
  Tensor z = Tensor::Zeros({kMany}, DType::kF32, TestDevice(), "many");
  Launch(unary_kernels.For(TestDevice()).affine,
         AffineArgs{DType::kF32, kMany, z.mutable_data(), z.data(), 2, 1});
  for (const float v : z.ToHost<float>()) ASSERT_EQ(v, 1);
}

// In place, and one element past where 16 bytes begin.
TEST(BasicDeviceTest, UnalignedAndInPlace) {
  constexpr int64_t kN = 3001;
  const std::vector<float> x = Samples<float>(kN + 1);
  Tensor y = OnDevice(x);
  const auto shifted = [](Tensor& t) { return t.mutable_data<float>() + 1; };
  Launch(unary_kernels.For(TestDevice()).forward,
         UnaryArgs{UnaryOp::kNeg, DType::kF32, kN, shifted(y), shifted(y)});
  const StridedIndex<2> index = {1, {kN}, {{1}, {1}}};
  Tensor copy = Tensor::Zeros({kN + 1}, DType::kF32, TestDevice(), "copy");
  Launch(copy_kernels.For(TestDevice()).copy,
         CopyArgs{DType::kF32, copy.mutable_data(), shifted(y), index});
  Launch(copy_kernels.For(TestDevice()).add_into,
         AddIntoArgs{shifted(copy), DType::kF32, copy.data(), DType::kF32, {1, {1}, {}}});
  Launch(binary_kernels.For(TestDevice()).forward,
         BinaryArgs{BinaryOp::kAdd, DType::kF32, shifted(y), shifted(y), shifted(y), index});
  const std::vector<float> doubled = y.ToHost<float>();
  const std::vector<float> copied = copy.ToHost<float>();
  EXPECT_EQ(doubled[0], x[0]);
  EXPECT_EQ(copied[1], -x[2] - x[1]);
  EXPECT_EQ(copied[kN], 0);
  for (int64_t i = 0; i < kN; ++i) {
    ASSERT_EQ(doubled[i + 1], -2 * x[i + 1]);
    if (i == 1) continue;
    ASSERT_EQ(copied[i], -x[i + 1]);
  }
}

}  // namespace
}  // namespace pando
