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

// The largest error of got[i] as f(x[i]), in units in the last place of f32.
template <typename F>
double WorstUlps(const std::vector<float>& x, void (*kernel)(const float*, float*, int64_t),
                 const F& f) {
  std::vector<float> y(x.size());
  kernel(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = f(static_cast<double>(x[i]));
    const double error = std::fabs(y[i] - want) / Ulp(want);
    worst = error <= worst ? worst : error;  // a NaN counts, and stays
  }
  return worst;
}

TEST_P(MathTest, LogIsWithinOneUlpEverywhere) {
  std::vector<float> x;
  for (uint32_t u = 1; u < 0x7F800000u; u += 509) x.push_back(__builtin_bit_cast(float, u));
  // Near 1, where the result is near 0.
  for (uint32_t u = 0x3F7F8000u; u < 0x3F808000u; ++u) x.push_back(__builtin_bit_cast(float, u));
  EXPECT_LE(WorstUlps(x, kernels().log, [](double v) { return std::log(v); }), 1.0);
}

TEST_P(MathTest, LogOfSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const float x[] = {0.0f, -0.0f, inf, -inf, std::nanf(""), -1.0f, 1.0f};
  float y[7];
  kernels().log(x, y, 7);
  EXPECT_EQ(y[0], -inf);
  EXPECT_EQ(y[1], -inf);
  EXPECT_EQ(y[2], inf);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_TRUE(std::isnan(y[5]));
  EXPECT_EQ(y[6], 0.0f);
}

TEST_P(MathTest, TanhIsWithinTwoUlpsEverywhere) {
  std::vector<float> x;
  for (uint32_t u = 0; u <= 0x7F800000u; u += 512) {
    x.push_back(__builtin_bit_cast(float, u));
    x.push_back(__builtin_bit_cast(float, u | 0x80000000u));
  }
  EXPECT_LE(WorstUlps(x, kernels().tanh, [](double v) { return std::tanh(v); }), 2.0);
  const float nan = std::nanf("");
  float y = 0;
  kernels().tanh(&nan, &y, 1);
  EXPECT_TRUE(std::isnan(y));
}

// Where the results are normal numbers and e^-x does not overflow.
std::vector<float> SigmoidArguments() {
  std::vector<float> x;
  for (int i = -87000; i <= 87000; ++i) x.push_back(static_cast<float>(i) * 0.001f);
  return x;
}

TEST_P(MathTest, SigmoidAndSilu) {
  const std::vector<float> x = SigmoidArguments();
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  // The exponential (1), the sum (1/2), the quotient (1/2), and 2 for crossing powers of two.
  EXPECT_LE(WorstUlps(x, kernels().sigmoid, sigmoid), 3.0);
  EXPECT_LE(WorstUlps(x, kernels().silu, [&](double v) { return v * sigmoid(v); }), 3.0);
  // The derivative crosses 0 near -1.278, where its terms cancel: an absolute error of a few 2^-24.
  std::vector<float> y(x.size());
  kernels().silu_derivative(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double s = sigmoid(x[i]);
    const double want = s + x[i] * s * sigmoid(-static_cast<double>(x[i]));
    ASSERT_NEAR(y[i], want, 4e-7) << x[i];
  }
}

TEST_P(MathTest, SigmoidAndSiluFarOut) {
  const float inf = std::numeric_limits<float>::infinity();
  const float x[] = {1e30f, -1e30f, inf, -inf};
  float y[4];
  kernels().sigmoid(x, y, 4);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], 1.0f);
  EXPECT_EQ(y[3], 0.0f);
  kernels().silu(x, y, 2);
  EXPECT_EQ(y[0], 1e30f);
  EXPECT_EQ(y[1], 0.0f);
  kernels().silu_derivative(x, y, 2);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 0.0f);
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
