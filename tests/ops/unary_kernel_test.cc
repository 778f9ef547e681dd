#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/error.h"
#include "ops/kernels/unary.h"
#include "tests/isa_tables.h"
#include "tests/samples.h"

namespace pando {
namespace {

class UnaryKernelTest : public testing::TestWithParam<IsaTable<UnaryKernels>> {
 protected:
  const UnaryKernels& kernels() const { return *GetParam().table; }
};

// Nothing, one element, a prime, more than one task's worth.
const int64_t kSizes[] = {0, 1, 257, 70001};

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

struct Case {
  UnaryOp op;
  double low, high;  // the arguments tried
  double (*value)(double x);
  double (*slope)(double saved);  // the derivative from x or y, whichever is saved
};
const Case kCases[] = {
    {UnaryOp::kExp, -5, 5, [](double x) { return std::exp(x); }, [](double y) { return y; }},
    {UnaryOp::kLog, 0.05, 9, [](double x) { return std::log(x); }, [](double x) { return 1 / x; }},
    {UnaryOp::kNeg, -5, 5, [](double x) { return -x; }, [](double) { return -1.0; }},
    {UnaryOp::kSqrt, 0.05, 9, [](double x) { return std::sqrt(x); },
     [](double y) { return 0.5 / y; }},
    {UnaryOp::kTanh, -5, 5, [](double x) { return std::tanh(x); },
     [](double y) { return 1 - y * y; }},
    {UnaryOp::kSigmoid, -5, 5, Logistic, [](double y) { return y - y * y; }},
    {UnaryOp::kSilu, -5, 5, [](double x) { return x * Logistic(x); },
     [](double x) { return Logistic(x) * (1 + x * (1 - Logistic(x))); }},
    {UnaryOp::kRelu, -5, 5, [](double x) { return std::fmax(x, 0); },
     [](double y) { return y > 0 ? 1.0 : 0.0; }},
    {UnaryOp::kSquare, -5, 5, [](double x) { return x * x; }, [](double x) { return 2 * x; }},
    {UnaryOp::kReciprocal, 0.2, 9, [](double x) { return 1 / x; }, [](double y) { return -y * y; }},
};

TEST(UnaryReference, SlopesAreSlopes) {
  for (const Case& c : kCases) {
    for (int i = 0; i < 50; ++i) {
      std::vector<double> x = {c.low + (c.high - c.low) * (i + 0.5) / 50};
      const double saved = SavedBy(c.op) == UnarySaves::kOutput ? c.value(x[0]) : x[0];
      EXPECT_NEAR(c.slope(saved), Slope(x, 0, [&] { return c.value(x[0]); }), 1e-7);
    }
  }
}

template <typename T>
std::vector<T> Arguments(const Case& c, int64_t n) {
  std::vector<T> x(n);
  for (int64_t i = 0; i < n; ++i) {
    x[i] =
        RoundTo<T>(static_cast<ComputeType<T>>(c.low + (c.high - c.low) * (0.5 + Sample(i, 0.5))));
  }
  return x;
}

// Within `roundings` of the compute type, relative to each result, and one to T.
template <typename T>
void ExpectRelative(const std::vector<T>& got, const std::vector<double>& want, double roundings,
                    double absolute) {
  const double unit = UnitRoundoff<ComputeType<T>>();
  for (size_t i = 0; i < got.size(); ++i) {
    const double tolerance =
        (roundings * unit + UnitRoundoff<T>()) * std::fabs(want[i]) * (1 + 0x1p-7) +
        absolute * unit + (sizeof(T) == 2 ? 0x1p-25 : 0);
    ASSERT_NEAR(ToFloat(got[i]), want[i], tolerance) << "at " << i;
  }
}

template <typename T>
void CheckValuesAndGradients(const UnaryKernels& kernels) {
  for (const Case& c : kCases) {
    for (const int64_t n : kSizes) {
      const std::vector<T> x = Arguments<T>(c, n);
      std::vector<T> y(n);
      kernels.forward({c.op, DTypeOf<T>::value, n, y.data(), x.data()}, nullptr);
      std::vector<double> want = Doubles(x);
      for (double& v : want) v = c.value(v);
      ExpectRelative(y, want, 6, 0);

      const std::vector<T> dy = Samples<T>(n, 31);
      std::vector<T> dx(n);
      const UnarySaves saves = SavedBy(c.op);
      const T* saved = saves == UnarySaves::kNothing ? nullptr
                       : saves == UnarySaves::kInput ? x.data()
                                                     : y.data();
      kernels.backward({c.op, DTypeOf<T>::value, n, dx.data(), dy.data(), saved}, nullptr);
      for (int64_t i = 0; i < n; ++i) {
        want[i] = ToFloat(dy[i]) * c.slope(saved == nullptr ? 0 : ToFloat(saved[i]));
      }
      // Those of tanh, sigmoid and SiLU cancel near 0; terms are at most 6.
      ExpectRelative(dx, want, 6, 6);
    }
  }
}

TEST_P(UnaryKernelTest, ValuesAndGradients) {
  CheckValuesAndGradients<float>(kernels());
  CheckValuesAndGradients<BFloat16>(kernels());
  CheckValuesAndGradients<Float16>(kernels());
  CheckValuesAndGradients<double>(kernels());
}

TEST_P(UnaryKernelTest, MayWorkInPlace) {
  constexpr int64_t kN = 1000;
  for (const Case& c : kCases) {
    std::vector<float> x = Arguments<float>(c, kN);
    std::vector<float> y(kN);
    kernels().forward({c.op, DType::kF32, kN, y.data(), x.data()}, nullptr);
    std::vector<float> saved = SavedBy(c.op) == UnarySaves::kOutput ? y : x;
    kernels().forward({c.op, DType::kF32, kN, x.data(), x.data()}, nullptr);
    PANDO_EXPECT_SAME_BITS(x, y);
    std::vector<float> dy = Samples<float>(kN);
    std::vector<float> dx(kN);
    kernels().backward({c.op, DType::kF32, kN, dx.data(), dy.data(), saved.data()}, nullptr);
    kernels().backward({c.op, DType::kF32, kN, dy.data(), dy.data(), saved.data()}, nullptr);
    PANDO_EXPECT_SAME_BITS(dx, dy);
  }
}

TEST_P(UnaryKernelTest, ReluOfSpecialValues) {
  const float x[] = {0.0f, -0.0f, std::nanf(""), -1e30f, 1e30f};
  const float dy[] = {1, 1, 1, 1, 1};
  float y[5];
  float dx[5];
  kernels().forward({UnaryOp::kRelu, DType::kF32, 5, y, x}, nullptr);
  kernels().backward({UnaryOp::kRelu, DType::kF32, 5, dx, dy, y}, nullptr);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], 0);
  EXPECT_EQ(y[4], 1e30f);
  EXPECT_EQ(dx[0], 0);
  EXPECT_EQ(dx[1], 0);
  EXPECT_EQ(dx[3], 0);
  EXPECT_EQ(dx[4], 1);
}

template <typename T>
void CheckAffine(const UnaryKernels& kernels) {
  for (const int64_t n : kSizes) {
    const std::vector<T> x = Samples<T>(n, 3, 4);
    std::vector<T> y(n);
    kernels.affine({DTypeOf<T>::value, n, y.data(), x.data(), -0.3, 1.7}, nullptr);
    std::vector<double> want = Doubles(x);
    for (double& v : want) v = -0.3 * v + 1.7;
    ExpectClose(y, want, 4, 2);  // two scalars, the product, the sum
  }
}

TEST_P(UnaryKernelTest, Affine) {
  CheckAffine<float>(kernels());
  CheckAffine<BFloat16>(kernels());
  CheckAffine<Float16>(kernels());
  CheckAffine<double>(kernels());
}

TEST_P(UnaryKernelTest, UndocumentedDTypesThrow) {
  int32_t x = 0;
  EXPECT_THROW(kernels().forward({UnaryOp::kNeg, DType::kI32, 1, &x, &x}, nullptr),
               InvalidArgument);
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(UnaryKernelTest, UnaryKernels, kUnaryKernels);

}  // namespace pando
