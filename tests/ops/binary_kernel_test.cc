#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "engine/error.h"
#include "ops/kernels/binary.h"
#include "ops/strided.h"
#include "tests/isa_tables.h"
#include "tests/ops/naive.h"
#include "tests/samples.h"

namespace pando {
namespace {

class BinaryKernelTest : public testing::TestWithParam<IsaTable<BinaryKernels>> {
 protected:
  const BinaryKernels& kernels() const { return *GetParam().table; }
};

// Scalars, equal shapes, rows, columns, both broadcast, all six dimensions, nothing at all; rows
// beyond a piece of 1024; more than one task's worth.
const std::pair<Sizes, Sizes> kShapes[] = {{{}, {}},
                                           {{}, {5}},
                                           {{7}, {7}},
                                           {{3, 1, 5}, {4, 1}},
                                           {{2, 3, 4, 5}, {3, 1, 5}},
                                           {{2, 1, 3, 1, 2, 1}, {1, 2, 1, 3, 1, 5}},
                                           {{0, 3}, {1, 3}},
                                           {{1}, {0}},
                                           {{33001}, {1}},
                                           {{3, 1701}, {1701}},
                                           {{257, 3}, {257, 1}},
                                           {{1, 1031}, {130, 1}}};

constexpr BinaryOp kOps[] = {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul,
                             BinaryOp::kDiv, BinaryOp::kMax, BinaryOp::kMin};

double Value(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kMax:
      return std::fmax(a, b);
    case BinaryOp::kMin:
      return std::fmin(a, b);
  }
  return 0;
}

// The derivatives with respect to a and b.
std::array<double, 2> Derivatives(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return {1, 1};
    case BinaryOp::kSub:
      return {1, -1};
    case BinaryOp::kMul:
      return {b, a};
    case BinaryOp::kDiv:
      return {1 / b, -a / (b * b)};
    case BinaryOp::kMax:
      return {a >= b ? 1.0 : 0.0, a >= b ? 0.0 : 1.0};
    case BinaryOp::kMin:
      return {a <= b ? 1.0 : 0.0, a <= b ? 0.0 : 1.0};
  }
  return {};
}

TEST(BinaryReference, DerivativesAreSlopes) {
  for (const BinaryOp op : kOps) {
    for (int step = 0; step < 11; ++step) {
      const double a = -2 + 0.375 * step;
      std::vector<double> x = {a, 1.3 + a / 3};
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(Derivatives(op, x[0], x[1])[i],
                    Slope(x, i, [&] { return Value(op, x[0], x[1]); }), 1e-8);
      }
    }
  }
}

template <typename T>
struct Problem {
  Problem(const Sizes& a_dims, const Sizes& b_dims)
      : a_dims(a_dims),
        b_dims(b_dims),
        y_dims(BroadcastOf(a_dims, b_dims)),
        a(Samples<T>(Numel(a_dims), 0, 2)),
        b(Samples<T>(Numel(b_dims), 500)),
        y(Numel(y_dims)),
        dy(Samples<T>(Numel(y_dims), 900, 0.5)),
        a_at(y.size()),
        b_at(y.size()) {
    for (size_t i = 0; i < y.size(); ++i) {
      const Place at = Coordinates(y_dims, static_cast<int64_t>(i));
      a_at[i] = ElementAt(a_dims, at);
      b_at[i] = ElementAt(b_dims, at);
    }
    // In [0.5, 2.5], so that quotients stay near 1.
    for (T& v : b) v = RoundTo<T>(static_cast<ComputeType<T>>(1.5) + ToFloat(v));
  }

  void Forward(const BinaryKernels& kernels, BinaryOp op) {
    kernels.forward({op, DTypeOf<T>::value, y.data(), a.data(), b.data(),
                     Collapsed(BroadcastIndex<2>(y_dims, {Dims(a_dims), Dims(b_dims)}))},
                    nullptr);
  }

  // The gradient of an operand in Out, added to `before`.
  template <typename Out>
  std::vector<Out> Backward(const BinaryKernels& kernels, BinaryOp op, int operand, bool accumulate,
                            std::vector<Out> dx) const {
    const ReduceIndex<3> index = ReduceBroadcast<3>(y_dims, operand == 0 ? a_dims : b_dims,
                                                    {Dims(y_dims), Dims(a_dims), Dims(b_dims)});
    std::vector<double> scratch(SumScratch(Count(index.kept), Count(index.reduced)));
    kernels.backward({op,
                      operand,
                      DTypeOf<T>::value,
                      dy.data(),
                      BinaryGradientReads(op, operand, 0) ? a.data() : nullptr,
                      BinaryGradientReads(op, operand, 1) ? b.data() : nullptr,
                      index,
                      {dx.data(), DTypeOf<Out>::value, accumulate, 1.0, scratch.data()}},
                     nullptr);
    return dx;
  }

  Sizes a_dims, b_dims, y_dims;
  std::vector<T> a, b, y, dy;
  std::vector<int64_t> a_at, b_at;  // the elements that each element of y is made from
};

template <typename T>
void CheckForward(const BinaryKernels& kernels) {
  for (const auto& [a_dims, b_dims] : kShapes) {
    Problem<T> p(a_dims, b_dims);
    const std::vector<double> a = Doubles(p.a);
    const std::vector<double> b = Doubles(p.b);
    for (const BinaryOp op : kOps) {
      p.Forward(kernels, op);
      std::vector<double> want(p.y.size());
      for (size_t i = 0; i < want.size(); ++i) {
        want[i] = Value(op, a[p.a_at[i]], b[p.b_at[i]]);
      }
      ExpectClose(p.y, want, 1, 6);  // one rounding in the compute type, of values up to 6
    }
  }
}

TEST_P(BinaryKernelTest, Forward) {
  CheckForward<float>(kernels());
  CheckForward<BFloat16>(kernels());
  CheckForward<Float16>(kernels());
  CheckForward<double>(kernels());
}

template <typename T, typename Out>
void CheckBackward(const BinaryKernels& kernels, bool accumulate) {
  for (const auto& [a_dims, b_dims] : kShapes) {
    const Problem<T> p(a_dims, b_dims);
    const std::vector<double> a = Doubles(p.a);
    const std::vector<double> b = Doubles(p.b);
    const std::vector<double> dy = Doubles(p.dy);
    for (const BinaryOp op : kOps) {
      for (int operand = 0; operand < 2; ++operand) {
        const Sizes& dims = operand == 0 ? a_dims : b_dims;
        const std::vector<Out> before = Samples<Out>(Numel(dims), 70);
        const std::vector<Out> dx =
            p.template Backward<Out>(kernels, op, operand, accumulate, before);
        NaiveSums want(Numel(dims));
        for (int64_t i = 0; accumulate && i < Numel(dims); ++i) want.Add(i, ToFloat(before[i]));
        const std::vector<int64_t>& to = operand == 0 ? p.a_at : p.b_at;
        for (size_t i = 0; i < dy.size(); ++i) {
          want.Add(to[i], dy[i] * Derivatives(op, a[p.a_at[i]], b[p.b_at[i]])[operand]);
        }
        ExpectSums<T>(dx, want);
      }
    }
  }
}

TEST_P(BinaryKernelTest, Backward) {
  CheckBackward<float, float>(kernels(), false);
  CheckBackward<float, float>(kernels(), true);
  CheckBackward<BFloat16, BFloat16>(kernels(), false);
  CheckBackward<BFloat16, float>(kernels(), true);
  CheckBackward<Float16, Float16>(kernels(), false);
  CheckBackward<double, double>(kernels(), true);
}

TEST_P(BinaryKernelTest, ResultsDoNotDependOnThreads) {
  // Sums across rows in chunks, along rows, and to one number.
  const std::pair<Sizes, Sizes> shapes[] = {
      {{1200, 300}, {300}}, {{1200, 300}, {1200, 1}}, {{1200, 300}, {}}, {{50, 70, 90}, {70, 1}}};
  for (const auto& [a_dims, b_dims] : shapes) {
    const Problem<float> p(a_dims, b_dims);
    const std::vector<float> zeros(p.b.size());
    const auto gradient = [&](int threads) {
      const WithThreads with(threads);
      return p.Backward<float>(kernels(), BinaryOp::kDiv, 1, false, zeros);
    };
    PANDO_EXPECT_SAME_BITS(gradient(1), gradient(2));
  }
}

TEST_P(BinaryKernelTest, MayOverwriteAnOperand) {
  Problem<float> p({70001}, {});
  p.Forward(kernels(), BinaryOp::kMul);
  const auto index = Collapsed(BroadcastIndex<2>(p.y_dims, {Dims(p.a_dims), Dims(p.b_dims)}));
  kernels().forward({BinaryOp::kMul, DType::kF32, p.a.data(), p.a.data(), p.b.data(), index},
                    nullptr);
  PANDO_EXPECT_SAME_BITS(p.a, p.y);
}

TEST_P(BinaryKernelTest, AnyStrides) {
  // y = a^T - b reversed: neither contiguous, the second backwards.
  constexpr int64_t kRows = 37;
  constexpr int64_t kCols = 1201;
  const std::vector<float> a = Samples<float>(kRows * kCols);
  const std::vector<float> b = Samples<float>(kRows * kCols, 99);
  std::vector<float> y(kRows * kCols);
  const StridedIndex<2> index = {2, {kRows, kCols}, {{1, kRows}, {-kCols, -1}}};
  kernels().forward({BinaryOp::kSub, DType::kF32, y.data(), a.data(), &b.back(), index}, nullptr);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(y[r * kCols + c], a[c * kRows + r] - b[kRows * kCols - 1 - r * kCols - c]);
    }
  }
}

TEST_P(BinaryKernelTest, MaxAndMinOfNaNAndOfEqualOperands) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float a[] = {nan, 1, nan, 2};
  const float b[] = {1, nan, nan, 2};
  const Sizes dims = {4};
  const auto index = BroadcastIndex<2>(dims, {Dims(dims), Dims(dims)});
  const auto reduce = ReduceBroadcast<3>(dims, dims, {Dims(dims), Dims(dims), Dims(dims)});
  const float dy[] = {1, 1, 1, 1};
  for (const BinaryOp op : {BinaryOp::kMax, BinaryOp::kMin}) {
    float y[4];
    float da[4];
    float db[4];
    kernels().forward({op, DType::kF32, y, a, b, index}, nullptr);
    kernels().backward({op, 0, DType::kF32, dy, a, b, reduce, {da, DType::kF32, false, 1, nullptr}},
                       nullptr);
    kernels().backward({op, 1, DType::kF32, dy, a, b, reduce, {db, DType::kF32, false, 1, nullptr}},
                       nullptr);
    const float want_da[] = {1, 0, 1, 1};
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(std::isnan(y[i]), i < 3);
      EXPECT_EQ(da[i], want_da[i]);
      EXPECT_EQ(da[i] + db[i], 1);
    }
    EXPECT_EQ(y[3], 2);
  }
}

template <typename T>
void CheckCompare(const BinaryKernels& kernels, const std::vector<T>& a, const std::vector<T>& b,
                  const std::vector<double>& a_value, const std::vector<double>& b_value) {
  const Sizes a_dims = {static_cast<int64_t>(a.size()), 1};
  const Sizes b_dims = {static_cast<int64_t>(b.size())};
  const Sizes dims = BroadcastOf(a_dims, b_dims);
  const auto index = Collapsed(BroadcastIndex<2>(dims, {Dims(a_dims), Dims(b_dims)}));
  const auto check = [&](CompareOp op, auto holds) {
    std::vector<int32_t> y(Numel(dims), 7);
    kernels.compare({op, DTypeOf<T>::value, y.data(), a.data(), b.data(), index}, nullptr);
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t j = 0; j < b.size(); ++j) {
        ASSERT_EQ(y[i * b.size() + j], holds(a_value[i], b_value[j]) ? 1 : 0);
      }
    }
  };
  check(CompareOp::kEqual, [](double u, double v) { return u == v; });
  check(CompareOp::kNotEqual, [](double u, double v) { return u != v; });
  check(CompareOp::kLess, [](double u, double v) { return u < v; });
  check(CompareOp::kLessEqual, [](double u, double v) { return u <= v; });
  check(CompareOp::kGreater, [](double u, double v) { return u > v; });
  check(CompareOp::kGreaterEqual, [](double u, double v) { return u >= v; });
}

template <typename T>
void CheckFloatingCompare(const BinaryKernels& kernels) {
  std::vector<T> a;
  for (const float v : {0.0f, -0.0f, 1.0f, -1.0f, 1e4f, std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN()}) {
    a.push_back(RoundTo<T>(v));
  }
  std::vector<T> b;
  for (int i = 0; i < 100; ++i) b.insert(b.end(), a.begin(), a.end());
  CheckCompare(kernels, a, b, Doubles(a), Doubles(b));
}

TEST_P(BinaryKernelTest, Compare) {
  CheckFloatingCompare<float>(kernels());
  CheckFloatingCompare<BFloat16>(kernels());
  CheckFloatingCompare<Float16>(kernels());
  CheckFloatingCompare<double>(kernels());
  const std::vector<int32_t> i = {0, -1, 1, INT32_MIN, INT32_MAX};
  const std::vector<double> i_value(i.begin(), i.end());
  CheckCompare(kernels(), i, i, i_value, i_value);
  const std::vector<int64_t> l = {0, -1, int64_t{1} << 40, -(int64_t{1} << 40),
                                  (int64_t{1} << 40) + 1};
  const std::vector<double> l_value(l.begin(), l.end());
  CheckCompare(kernels(), l, l, l_value, l_value);
}

TEST_P(BinaryKernelTest, ComparesLongsExactly) {
  const int64_t a = (int64_t{1} << 60) + 1;
  const int64_t b = int64_t{1} << 60;  // the same f64
  int32_t y = 7;
  kernels().compare({CompareOp::kGreater, DType::kI64, &y, &a, &b, {1, {1}, {}}}, nullptr);
  EXPECT_EQ(y, 1);
}

TEST_P(BinaryKernelTest, UndocumentedDTypesThrow) {
  int32_t y = 0;
  EXPECT_THROW(kernels().forward({BinaryOp::kAdd, DType::kI32, &y, &y, &y, {1, {1}, {}}}, nullptr),
               InvalidArgument);
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(BinaryKernelTest, BinaryKernels, kBinaryKernels);

}  // namespace pando
