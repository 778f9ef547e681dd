#include "ops/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/isa_tables.h"
#include "tests/ops/math_kernels.h"

namespace pando {
namespace {

class MathTest : public testing::TestWithParam<IsaTable<MathKernels>> {
 protected:
  const MathKernels& kernels() const { return *GetParam().table; }
};

// The distance from one f32 to the next at |x|, subnormals included.
double Ulp(double x) {
  const int exponent = x == 0 ? -126 : std::max(std::ilogb(x), -126);
  return std::ldexp(1.0, exponent - 23);
}

TEST_P(MathTest, ExpIsWithinOneUlpEverywhere) {
  std::vector<float> x;
  // Every 509th f32 of either sign up to 2^7 = 128: past overflow and past underflow to 0.
  for (uint32_t u = 0; u <= 0x43000000u; u += 509) {
    x.push_back(__builtin_bit_cast(float, u));
    x.push_back(__builtin_bit_cast(float, u | 0x80000000u));
  }
  std::vector<float> y(x.size());
  kernels().exp(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    if (want > std::numeric_limits<float>::max()) {
      ASSERT_TRUE(std::isinf(y[i])) << x[i];
    } else {
      worst = std::max(worst, std::fabs(y[i] - want) / Ulp(want));
    }
  }
  EXPECT_LE(worst, 1.0);
}

TEST_P(MathTest, ExpOfSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const float x[] = {0.0f, -0.0f, inf, -inf, std::nanf(""), 1e30f, -1e30f};
  float y[7];
  kernels().exp(x, y, 7);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], inf);
  EXPECT_EQ(y[3], 0.0f);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], inf);
  EXPECT_EQ(y[6], 0.0f);
}

double TextbookGelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST_P(MathTest, GeluAndItsDerivative) {
  std::vector<float> x;
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) * 0x1p-10f);
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> y(n);
  std::vector<float> d(n);
  kernels().gelu(x.data(), y.data(), n);
  kernels().gelu_derivative(x.data(), d.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    // A few roundings, of which the one in the exponent's argument (up to 20 where the result
    // matters) is multiplied by it.
    ASSERT_NEAR(y[i], TextbookGelu(x[i]), 1e-6 * std::fabs(x[i])) << x[i];
    const double h = 1e-5;
    const double slope = (TextbookGelu(x[i] + h) - TextbookGelu(x[i] - h)) / (2 * h);
    ASSERT_NEAR(d[i], slope, 2e-6) << x[i];
  }
}

TEST_P(MathTest, GeluFarOut) {
  const float x[] = {50.0f, -50.0f, 1e9f, -1e9f};
  float y[4];
  float d[4];
  kernels().gelu(x, y, 4);
  kernels().gelu_derivative(x, d, 4);
  EXPECT_EQ(y[0], 50.0f);
  EXPECT_NEAR(y[1], 0.0f, 1e-30);
  EXPECT_EQ(y[2], 1e9f);
  EXPECT_NEAR(y[3], 0.0f, 1e-20);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(d[i], i % 2 == 0 ? 1.0f : 0.0f, 1e-8) << x[i];
}

TEST(MathDouble, GeluAndItsDerivative) {
  for (int i = -128; i <= 128; ++i) {
    const double x = i / 16.0;
    EXPECT_NEAR(Gelu(x), TextbookGelu(x), 1e-15 * (1 + std::fabs(x)));
    const double h = 1e-5;
    const double slope = (TextbookGelu(x + h) - TextbookGelu(x - h)) / (2 * h);
    EXPECT_NEAR(GeluDerivative(x), slope, 1e-9);
  }
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(MathTest, MathKernels, kMathKernels);

}  // namespace pando
