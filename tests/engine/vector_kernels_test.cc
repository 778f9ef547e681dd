#include "engine/vector_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/error.h"
#include "engine/vector_math.h"
#include "tests/isa_tables.h"
#include "tests/samples.h"

namespace pando {
namespace {

class VectorKernelsTest : public testing::TestWithParam<IsaTable<VectorKernels>> {
 protected:
  const VectorKernels& kernels() const { return *GetParam().table; }
};

// 0, 1, primes, and more than one task's worth.
const int64_t kSizes[] = {0, 1, 7, 257, 70001};

TEST_P(VectorKernelsTest, Fill) {
  for (int64_t n : kSizes) {
    std::vector<float> f(n + 1, 7.0f);
    kernels().fill({f.data(), DType::kF32, n, -1.5}, nullptr);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(f[i], -1.5f);
    ASSERT_EQ(f[n], 7.0f);
    std::vector<int64_t> k(n + 1, 7);
    kernels().fill({k.data(), DType::kI64, n, 1e15}, nullptr);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(k[i], 1000000000000000);
    ASSERT_EQ(k[n], 7);
  }
  BFloat16 b{};
  kernels().fill({&b, DType::kBF16, 1, 1.0}, nullptr);
  EXPECT_EQ(b.bits, 0x3F80);
  Float16 h{};
  kernels().fill({&h, DType::kF16, 1, 1.0}, nullptr);
  EXPECT_EQ(h.bits, 0x3C00);
  int32_t i = 0;
  kernels().fill({&i, DType::kI32, 1, -100.0}, nullptr);
  EXPECT_EQ(i, -100);
}

template <typename Y, typename X>
void CheckAxpy(const VectorKernels& kernels) {
  const float factor = 0.375f;
  for (int64_t n : kSizes) {
    const std::vector<X> x = Samples<X>(n);
    std::vector<Y> y = Samples<Y>(n, 5);
    const std::vector<Y> before = y;
    kernels.axpy({y.data(), DTypeOf<Y>::value, x.data(), DTypeOf<X>::value, n, -1.25, &factor},
                 nullptr);
    for (int64_t i = 0; i < n; ++i) {
      const double term = -1.25 * 0.375 * ToFloat(x[i]);
      const double want = ToFloat(before[i]) + term;
      // Product and sum round in the compute type, the result in Y (f16 in steps of 2^-24).
      const double tolerance =
          UnitRoundoff<ComputeType<Y>>() * (std::fabs(term) + std::fabs(want)) +
          UnitRoundoff<Y>() * std::fabs(want) * (1 + 0x1p-8) + (sizeof(Y) == 2 ? 0x1p-25 : 0);
      ASSERT_NEAR(ToFloat(y[i]), want, tolerance) << i;
    }
  }
}

TEST_P(VectorKernelsTest, Axpy) {
  CheckAxpy<float, float>(kernels());
  CheckAxpy<double, double>(kernels());
  CheckAxpy<BFloat16, BFloat16>(kernels());
  CheckAxpy<Float16, Float16>(kernels());
  CheckAxpy<float, BFloat16>(kernels());
  CheckAxpy<float, Float16>(kernels());
  float y = 1.0f;
  const float x = 2.0f;
  kernels().axpy({&y, DType::kF32, &x, DType::kF32, 1, 3.0, nullptr}, nullptr);
  EXPECT_EQ(y, 7.0f);
}

TEST_P(VectorKernelsTest, UndocumentedDTypesThrow) {
  float y = 0;
  EXPECT_THROW(kernels().axpy({&y, DType::kBF16, &y, DType::kF32, 1, 1.0, nullptr}, nullptr),
               InvalidArgument);
  EXPECT_THROW(kernels().scale({&y, DType::kI32, 1, 1.0, nullptr}, nullptr), InvalidArgument);
}

template <typename T>
void CheckScale(const VectorKernels& kernels) {
  const float factor = 0.5f;
  for (int64_t n : kSizes) {
    std::vector<T> x = Samples<T>(n);
    const std::vector<T> before = x;
    kernels.scale({x.data(), DTypeOf<T>::value, n, 3.0, &factor}, nullptr);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(ToFloat(x[i]), ToFloat(RoundTo<T>(ToFloat(before[i]) * 1.5f)));  // one rounding
    }
  }
}

TEST_P(VectorKernelsTest, Scale) {
  CheckScale<float>(kernels());
  CheckScale<double>(kernels());
  CheckScale<BFloat16>(kernels());
  CheckScale<Float16>(kernels());
}

template <typename Y, typename X>
void CheckCast(const VectorKernels& kernels) {
  for (int64_t n : kSizes) {
    const std::vector<X> x = Samples<X>(n);
    std::vector<Y> y(n);
    kernels.cast({y.data(), DTypeOf<Y>::value, x.data(), DTypeOf<X>::value, n}, nullptr);
    for (int64_t i = 0; i < n; ++i) {
      const double want = ToFloat(x[i]);
      // Rounding to nearest: within half an ulp; below 2^-14, f16 is denser than its ulp.
      ASSERT_NEAR(ToFloat(y[i]), want, UnitRoundoff<Y>() * std::fabs(want) + 0x1p-25);
    }
  }
}

template <typename Y>
void CheckCastsTo(const VectorKernels& kernels) {
  CheckCast<Y, float>(kernels);
  CheckCast<Y, BFloat16>(kernels);
  CheckCast<Y, Float16>(kernels);
  CheckCast<Y, double>(kernels);
}

TEST_P(VectorKernelsTest, Cast) {
  CheckCastsTo<float>(kernels());
  CheckCastsTo<BFloat16>(kernels());
  CheckCastsTo<Float16>(kernels());
  CheckCastsTo<double>(kernels());
}

// A hair above the tie between two bf16 (f16): rounding to f32 first would make it a tie, which
// goes to even, that is down.
TEST_P(VectorKernelsTest, CastFromDoubleRoundsOnce) {
  const double x[] = {1 + 0x1p-8 + 0x1p-40, -(1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-8 - 0x1p-40,
                      std::numeric_limits<double>::infinity(), 1e300};
  BFloat16 b[5];
  kernels().cast({b, DType::kBF16, x, DType::kF64, 5}, nullptr);
  EXPECT_EQ(b[0].bits, 0x3F81);
  EXPECT_EQ(b[1].bits, 0xBF81);
  EXPECT_EQ(b[2].bits, 0x3F80);
  EXPECT_EQ(b[3].bits, 0x7F80);
  EXPECT_EQ(b[4].bits, 0x7F80);
  const double y[] = {1 + 0x1p-11 + 0x1p-40, std::nan("")};
  Float16 h[2];
  kernels().cast({h, DType::kF16, y, DType::kF64, 2}, nullptr);
  EXPECT_EQ(h[0].bits, 0x3C01);
  EXPECT_TRUE(std::isnan(ToFloat(h[1])));
}

TEST_P(VectorKernelsTest, StochasticCastIsUnbiasedAndAddressedByElement) {
  constexpr int64_t kN = 1 << 18;
  const RandomKey key{.seed = 3, .site = 1, .step = 2};
  const float exact = 1.0f + 0.3f * 0x1p-7f;  // 0.3 of the way from 1 to the next bf16
  const std::vector<float> x(kN, exact);
  std::vector<BFloat16> y(kN);
  kernels().stochastic_cast({y.data(), x.data(), kN, key, 0}, nullptr);
  int64_t up = 0;
  for (BFloat16 v : y) {
    ASSERT_TRUE(v.bits == 0x3F80 || v.bits == 0x3F81);
    up += v.bits == 0x3F81;
  }
  // Five standard errors of a proportion.
  EXPECT_NEAR(static_cast<double>(up) / kN, 0.3, 5 * std::sqrt(0.3 * 0.7 / kN));

  std::vector<BFloat16> part(1001);
  kernels().stochastic_cast({part.data(), x.data(), 1001, key, 12345}, nullptr);
  EXPECT_EQ(std::memcmp(part.data(), y.data() + 12345, 2 * part.size()), 0);
  for (int64_t i = 0; i < 1001; ++i) {
    ASSERT_EQ(part[i].bits, 0x3F80 + (0x4CCC + (RandomBits(key, 0, 12345 + i) >> 16) > 0xFFFF));
  }
}

TEST_P(VectorKernelsTest, StochasticCastKeepsWhatIsExactOrNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const float signalling = __builtin_bit_cast(float, 0x7F800001u);
  const float x[] = {0.0f, -1.5f, inf, -inf, std::nanf(""), signalling};
  BFloat16 y[6];
  for (uint32_t step = 0; step < 100; ++step) {
    kernels().stochastic_cast({y, x, 6, {.seed = 1, .site = 0, .step = step}, 0}, nullptr);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(ToFloat(y[i]), x[i]);
    ASSERT_TRUE(std::isnan(ToFloat(y[4])));
    ASSERT_TRUE(std::isnan(ToFloat(y[5])));
  }
}

template <typename T>
void CheckSumSquares(const VectorKernels& kernels) {
  for (int64_t n : kSizes) {
    const std::vector<T> x = Samples<T>(n);
    long double want = 0;
    for (T v : x) want += static_cast<long double>(ToFloat(v)) * ToFloat(v);
    std::vector<double> scratch(SumSquaresScratch(n));
    double got = 1.0;
    kernels.sum_squares({x.data(), DTypeOf<T>::value, n, scratch.data(), &got, false}, nullptr);
    // Terms are positive: the error of n f64 additions is at most n ulps; in fact far less.
    ASSERT_NEAR(got, want, 1e-13 * want);
    double twice = got;
    kernels.sum_squares({x.data(), DTypeOf<T>::value, n, scratch.data(), &twice, true}, nullptr);
    ASSERT_EQ(twice, 2 * got);
  }
}

TEST_P(VectorKernelsTest, SumSquares) {
  CheckSumSquares<float>(kernels());
  CheckSumSquares<double>(kernels());
  CheckSumSquares<BFloat16>(kernels());
  CheckSumSquares<Float16>(kernels());
}

TEST_P(VectorKernelsTest, SumSquaresDependsNeitherOnThreadsNorOnAlignment) {
  constexpr int64_t kN = 200003;
  const std::vector<float> x = Samples<float>(kN);
  std::vector<double> scratch(SumSquaresScratch(kN));
  std::vector<float> shifted(kN + 8);
  double first = 0;
  for (int shift = 0; shift < 8; ++shift) {
    std::memcpy(shifted.data() + shift, x.data(), kN * sizeof(float));
    const WithThreads with(1 + shift % 3);
    double sum = 0;
    kernels().sum_squares({shifted.data() + shift, DType::kF32, kN, scratch.data(), &sum, false},
                          nullptr);
    if (shift == 0) first = sum;
    EXPECT_EQ(sum, first);
  }
}

template <typename T>
void CheckNonFinite(const VectorKernels& kernels) {
  constexpr int64_t kN = 70001;
  std::vector<T> x = Samples<T>(kN);
  int32_t flag = 0;
  kernels.non_finite({x.data(), DTypeOf<T>::value, kN, &flag}, nullptr);
  EXPECT_EQ(flag, 0);
  flag = 4;
  kernels.non_finite({x.data(), DTypeOf<T>::value, 0, &flag}, nullptr);
  EXPECT_EQ(flag, 4);
  using C = ComputeType<T>;
  for (C bad : {std::numeric_limits<C>::infinity(), -std::numeric_limits<C>::infinity(),
                std::numeric_limits<C>::quiet_NaN()}) {
    for (int64_t at : {int64_t{0}, int64_t{33000}, kN - 1}) {
      const T good = x[at];
      x[at] = RoundTo<T>(bad);
      flag = 4;
      kernels.non_finite({x.data(), DTypeOf<T>::value, kN, &flag}, nullptr);
      EXPECT_EQ(flag, 5);
      x[at] = good;
    }
  }
}

TEST_P(VectorKernelsTest, NonFinite) {
  CheckNonFinite<float>(kernels());
  CheckNonFinite<double>(kernels());
  CheckNonFinite<BFloat16>(kernels());
  CheckNonFinite<Float16>(kernels());
}

AdamWArgs AdamWDefaults() {
  AdamWArgs a{};
  a.lr = 0.01;
  a.beta1 = 0.9;
  a.beta2 = 0.95;
  a.eps = 1e-8;
  a.weight_decay = 0.1;
  a.bias_correction1 = 1 - a.beta1;
  a.bias_correction2 = 1 - a.beta2;
  a.grad_scale = 1;
  return a;
}

// Five steps of torch.optim.AdamW in f64: tools/golden/adamw.py.
TEST_P(VectorKernelsTest, AdamWFollowsPyTorch) {
  const double want_p[] = {0.464438519611,  0.250829543924,  -0.0223241042223,
                           -0.240885452185, -0.516796239987, -0.736272470598};
  const double want_m[] = {0.06702, 0.03562875, 0.0879475, 0.01470125, 0.108875, -0.00622625};
  const double want_v[] = {0.0108408984375, 0.0165286083984, 0.0423958203125,
                           0.0556671435547, 0.102228125,     0.123083061523};
  constexpr int kN = 6;
  float p[kN];
  float m[kN] = {};
  float v[kN] = {};
  float grad[kN];
  for (int i = 0; i < kN; ++i) p[i] = 0.5f - 0.25f * static_cast<float>(i);
  const float factor = 0.5f;
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < kN; ++i) {
      const double sign = (i + step) % 2 == 0 ? 1 : -1;
      // Four times the gradient: grad_scale and *grad_factor take it back, exactly.
      grad[i] = static_cast<float>(4 * (0.125 * (i + 1) * sign + 0.0625 * step));
    }
    AdamWArgs a = AdamWDefaults();
    a.p = p;
    a.m = m;
    a.v = v;
    a.grad = grad;
    a.n = kN;
    a.bias_correction1 = 1 - std::pow(a.beta1, step + 1);
    a.bias_correction2 = 1 - std::pow(a.beta2, step + 1);
    a.grad_scale = 0.5;
    a.grad_factor = &factor;
    kernels().adamw(a, nullptr);
  }
  for (int i = 0; i < kN; ++i) {  // a few f32 roundings in each of five steps
    EXPECT_NEAR(p[i], want_p[i], 5e-7 * (std::fabs(want_p[i]) + 0.01)) << i;
    EXPECT_NEAR(m[i], want_m[i], 1e-7) << i;
    EXPECT_NEAR(v[i], want_v[i], 5e-7 * want_v[i]) << i;
  }
}

struct AdamWState {
  explicit AdamWState(int64_t n)
      : p(Samples<float>(n)), m(Samples<float>(n, 3)), v(Samples<float>(n, 9)), copy(n) {
    for (float& x : v) x *= x;
  }
  AdamWArgs Args(int64_t from, int64_t count, const std::vector<float>& grad) {
    AdamWArgs a = AdamWDefaults();
    a.p = p.data() + from;
    a.m = m.data() + from;
    a.v = v.data() + from;
    a.grad = grad.data() + from;
    a.n = count;
    a.copy = copy.data() + from;
    a.copy_dtype = DType::kBF16;
    a.key = {.seed = 11, .site = 5, .step = 7};
    a.first_element = from;
    return a;
  }
  std::vector<float> p, m, v;
  std::vector<BFloat16> copy;
};

TEST_P(VectorKernelsTest, AdamWMatchesTheFormulaAndRoundsItsCopy) {
  for (int64_t n : kSizes) {
    for (Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      AdamWState s(n);
      const AdamWState before(n);
      const std::vector<float> grad = Samples<float>(n, 20);
      AdamWArgs a = s.Args(0, n, grad);
      a.rounding = rounding;
      a.eps = 0.125;  // large enough to be seen
      kernels().adamw(a, nullptr);
      for (int64_t i = 0; i < n; ++i) {
        const double g = grad[i];
        const double m = 0.9 * before.m[i] + 0.1 * g;
        const double v = 0.95 * before.v[i] + 0.05 * g * g;
        const double p = before.p[i] * (1 - 0.001) - 0.01 / 0.1 * m / (std::sqrt(v / 0.05) + 0.125);
        // m cancels: its error is relative to its terms, and is divided by sqrt(v) in p.
        const double m_terms = std::fabs(0.9 * before.m[i]) + std::fabs(0.1 * g);
        ASSERT_NEAR(s.m[i], m, 2e-7 * m_terms);
        ASSERT_NEAR(s.v[i], v, 3e-7 * v);
        ASSERT_NEAR(s.p[i], p, 2e-7 * std::fabs(p) + 0.1 * 6e-7 * m_terms / std::sqrt(v / 0.05));
        const uint32_t bits = RandomBits(a.key, 0, i);
        ASSERT_EQ(s.copy[i].bits, rounding == Rounding::kNearest
                                      ? ToBFloat16(s.p[i]).bits
                                      : StochasticBFloat16(s.p[i], bits).bits);
      }
    }
  }
}

TEST_P(VectorKernelsTest, AdamWIsTheSameWhateverTheIntervalsAndThreads) {
  constexpr int64_t kN = 100003;
  const std::vector<float> grad = Samples<float>(kN, 20);
  AdamWState whole(kN);
  AdamWArgs a = whole.Args(0, kN, grad);
  a.rounding = Rounding::kStochastic;
  kernels().adamw(a, nullptr);
  const WithThreads one(1);
  AdamWState cut(kN);
  const int64_t cuts[] = {0, 1, 1003, 60000, kN};
  for (int k = 0; k < 4; ++k) {
    AdamWArgs part = cut.Args(cuts[k], cuts[k + 1] - cuts[k], grad);
    part.rounding = Rounding::kStochastic;
    kernels().adamw(part, nullptr);
  }
  PANDO_EXPECT_SAME_BITS(whole.p, cut.p);
  PANDO_EXPECT_SAME_BITS(whole.m, cut.m);
  PANDO_EXPECT_SAME_BITS(whole.v, cut.v);
  PANDO_EXPECT_SAME_BITS(whole.copy, cut.copy);
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(VectorKernelsTest, VectorKernels, kVectorKernels);

}  // namespace pando
