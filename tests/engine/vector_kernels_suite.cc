#include "tests/engine/vector_kernels_suite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/error.h"
#include "engine/tensor.h"
#include "engine/vector_math.h"
#include "tests/samples.h"

namespace pando {
namespace {

// 0, 1, primes, and more than one task's (on a GPU: many blocks') worth.
const int64_t kSizes[] = {0, 1, 7, 257, 70001};
// Elements before the first: with 1, nothing is aligned for wide loads.
const int64_t kOffsets[] = {0, 1};

/// Values on a device, the first of them `offset` elements behind an aligned address.
template <typename T>
class Placed {
 public:
  Placed(Device& device, const std::vector<T>& values, int64_t offset = 0) : offset_(offset) {
    std::vector<T> all(offset);
    all.insert(all.end(), values.begin(), values.end());
    tensor_ = Tensor::FromHost(all, {static_cast<int64_t>(all.size())}, device, "placed");
  }
  T* data() { return tensor_.mutable_data<T>() + offset_; }
  /// Waits for the values.
  std::vector<T> Get() const {
    std::vector<T> all = tensor_.ToHost<T>();
    if (offset_ > 0) {
      const std::vector<T> zeros(offset_);
      EXPECT_EQ(std::memcmp(all.data(), zeros.data(), offset_ * sizeof(T)), 0) << "written before";
    }
    all.erase(all.begin(), all.begin() + offset_);
    return all;
  }
  void Set(const std::vector<T>& values) {
    tensor_.Narrow(offset_, static_cast<int64_t>(values.size()))
        .CopyFrom(
            Tensor::FromHost(values, {static_cast<int64_t>(values.size())}, tensor_.device()));
  }

 private:
  int64_t offset_;
  Tensor tensor_;
};

/// Calls check(n, offset) for all of both.
template <typename Check>
void ForAllPlacements(const Check& check) {
  for (int64_t n : kSizes) {
    for (int64_t offset : kOffsets) check(n, offset);
  }
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

}  // namespace

TEST_P(VectorKernelsTest, Fill) {
  ForAllPlacements([&](int64_t n, int64_t offset) {
    Placed<float> f(device(), std::vector<float>(n + 1, 7.0f), offset);
    Launch(kernels().fill, {f.data(), DType::kF32, n, -1.5});
    std::vector<float> want_f(n, -1.5f);
    want_f.push_back(7.0f);
    ASSERT_EQ(f.Get(), want_f);
    Placed<int64_t> k(device(), std::vector<int64_t>(n + 1, 7), offset);
    Launch(kernels().fill, {k.data(), DType::kI64, n, 1e15});
    std::vector<int64_t> want_k(n, 1000000000000000);
    want_k.push_back(7);
    ASSERT_EQ(k.Get(), want_k);
    Placed<Float16> h(device(), std::vector<Float16>(n + 1, Float16{7}), offset);
    Launch(kernels().fill, {h.data(), DType::kF16, n, 1.0});
    const std::vector<Float16> got = h.Get();
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got[i].bits, 0x3C00);
    ASSERT_EQ(got[n].bits, 7);
  });
  Placed<BFloat16> b(device(), {BFloat16{}});
  Launch(kernels().fill, {b.data(), DType::kBF16, 1, 1.0});
  EXPECT_EQ(b.Get()[0].bits, 0x3F80);
  Placed<int32_t> i(device(), {0});
  Launch(kernels().fill, {i.data(), DType::kI32, 1, -100.0});
  EXPECT_EQ(i.Get()[0], -100);
  Placed<double> d(device(), {0.0});
  Launch(kernels().fill, {d.data(), DType::kF64, 1, 0.1});
  EXPECT_EQ(d.Get()[0], 0.1);
}

template <typename Y, typename X>
void VectorKernelsTest::CheckAxpy() {
  Placed<float> factor(device(), {0.375f});
  ForAllPlacements([&](int64_t n, int64_t offset) {
    const std::vector<X> x = Samples<X>(n);
    const std::vector<Y> before = Samples<Y>(n, 5);
    Placed<X> x_there(device(), x, offset);
    Placed<Y> y_there(device(), before, offset);
    Launch(kernels().axpy, {y_there.data(), DTypeOf<Y>::value, x_there.data(), DTypeOf<X>::value, n,
                            -1.25, factor.data()});
    const std::vector<Y> y = y_there.Get();
    for (int64_t i = 0; i < n; ++i) {
      const double term = -1.25 * 0.375 * ToFloat(x[i]);
      const double want = ToFloat(before[i]) + term;
      // Product and sum round in the compute type, the result in Y (f16 in steps of 2^-24).
      const double tolerance =
          UnitRoundoff<ComputeType<Y>>() * (std::fabs(term) + std::fabs(want)) +
          UnitRoundoff<Y>() * std::fabs(want) * (1 + 0x1p-8) + (sizeof(Y) == 2 ? 0x1p-25 : 0);
      ASSERT_NEAR(ToFloat(y[i]), want, tolerance) << i;
    }
  });
}

TEST_P(VectorKernelsTest, Axpy) {
  CheckAxpy<float, float>();
  CheckAxpy<double, double>();
  CheckAxpy<BFloat16, BFloat16>();
  CheckAxpy<Float16, Float16>();
  CheckAxpy<float, BFloat16>();
  CheckAxpy<float, Float16>();
  Placed<float> y(device(), {1.0f});
  Placed<float> x(device(), {2.0f});
  Launch(kernels().axpy, {y.data(), DType::kF32, x.data(), DType::kF32, 1, 3.0, nullptr});
  EXPECT_EQ(y.Get()[0], 7.0f);
}

TEST_P(VectorKernelsTest, UndocumentedDTypesThrow) {
  Placed<float> y(device(), {0.0f});
  float* p = y.data();
  EXPECT_THROW(Launch(kernels().axpy, {p, DType::kBF16, p, DType::kF32, 1, 1.0, nullptr}),
               InvalidArgument);
  EXPECT_THROW(Launch(kernels().scale, {p, DType::kI32, 1, 1.0, nullptr}), InvalidArgument);
  AdamWArgs a = AdamWDefaults();
  a.p = a.m = a.v = p;
  a.grad = p;
  a.copy = p;
  a.n = 0;
  a.copy_dtype = DType::kF16;
  a.rounding = Rounding::kStochastic;
  EXPECT_THROW(Launch(kernels().adamw, a), InvalidArgument);
}

template <typename T>
void VectorKernelsTest::CheckScale() {
  Placed<float> factor(device(), {0.5f});
  ForAllPlacements([&](int64_t n, int64_t offset) {
    const std::vector<T> before = Samples<T>(n);
    Placed<T> there(device(), before, offset);
    Launch(kernels().scale, {there.data(), DTypeOf<T>::value, n, 3.0, factor.data()});
    const std::vector<T> x = there.Get();
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(ToFloat(x[i]), ToFloat(RoundTo<T>(ToFloat(before[i]) * 1.5f)));  // one rounding
    }
  });
}

TEST_P(VectorKernelsTest, Scale) {
  CheckScale<float>();
  CheckScale<double>();
  CheckScale<BFloat16>();
  CheckScale<Float16>();
}

template <typename Y, typename X>
void VectorKernelsTest::CheckCast() {
  ForAllPlacements([&](int64_t n, int64_t offset) {
    const std::vector<X> x = Samples<X>(n);
    Placed<X> x_there(device(), x, offset);
    Placed<Y> y_there(device(), std::vector<Y>(n), offset);
    Launch(kernels().cast,
           {y_there.data(), DTypeOf<Y>::value, x_there.data(), DTypeOf<X>::value, n});
    const std::vector<Y> y = y_there.Get();
    for (int64_t i = 0; i < n; ++i) {
      const double want = ToFloat(x[i]);
      // Rounding to nearest: within half an ulp; below 2^-14, f16 is denser than its ulp.
      ASSERT_NEAR(ToFloat(y[i]), want, UnitRoundoff<Y>() * std::fabs(want) + 0x1p-25);
      const Y on_the_host = RoundFrom<Y>(x[i]);  // every device's bits are the same
      ASSERT_EQ(ToFloat(y[i]), ToFloat(on_the_host));
      ASSERT_EQ(std::signbit(ToFloat(y[i])), std::signbit(ToFloat(on_the_host)));
    }
  });
}

template <typename Y>
void VectorKernelsTest::CheckCastsTo() {
  CheckCast<Y, float>();
  CheckCast<Y, BFloat16>();
  CheckCast<Y, Float16>();
  CheckCast<Y, double>();
}

TEST_P(VectorKernelsTest, Cast) {
  CheckCastsTo<float>();
  CheckCastsTo<BFloat16>();
  CheckCastsTo<Float16>();
  CheckCastsTo<double>();
}

// A hair above the tie between two bf16 (f16): rounding to f32 first would make it a tie, which
// goes to even, that is down.
TEST_P(VectorKernelsTest, CastFromDoubleRoundsOnce) {
  Placed<double> x(device(), {1 + 0x1p-8 + 0x1p-40, -(1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-8 - 0x1p-40,
                              std::numeric_limits<double>::infinity(), 1e300});
  Placed<BFloat16> b_there(device(), std::vector<BFloat16>(5));
  Launch(kernels().cast, {b_there.data(), DType::kBF16, x.data(), DType::kF64, 5});
  const std::vector<BFloat16> b = b_there.Get();
  EXPECT_EQ(b[0].bits, 0x3F81);
  EXPECT_EQ(b[1].bits, 0xBF81);
  EXPECT_EQ(b[2].bits, 0x3F80);
  EXPECT_EQ(b[3].bits, 0x7F80);
  EXPECT_EQ(b[4].bits, 0x7F80);
  Placed<double> y(device(), {1 + 0x1p-11 + 0x1p-40, std::nan("")});
  Placed<Float16> h_there(device(), std::vector<Float16>(2));
  Launch(kernels().cast, {h_there.data(), DType::kF16, y.data(), DType::kF64, 2});
  const std::vector<Float16> h = h_there.Get();
  EXPECT_EQ(h[0].bits, 0x3C01);
  EXPECT_TRUE(std::isnan(ToFloat(h[1])));
}

TEST_P(VectorKernelsTest, StochasticCastIsUnbiasedAndAddressedByElement) {
  constexpr int64_t kN = 1 << 18;
  const RandomKey key{.seed = 3, .site = 1, .step = 2};
  const float exact = 1.0f + 0.3f * 0x1p-7f;  // 0.3 of the way from 1 to the next bf16
  Placed<float> x(device(), std::vector<float>(kN, exact));
  Placed<BFloat16> y_there(device(), std::vector<BFloat16>(kN));
  Launch(kernels().stochastic_cast, {y_there.data(), x.data(), kN, key, 0});
  const std::vector<BFloat16> y = y_there.Get();
  int64_t up = 0;
  for (BFloat16 v : y) {
    ASSERT_TRUE(v.bits == 0x3F80 || v.bits == 0x3F81);
    up += v.bits == 0x3F81;
  }
  // Five standard errors of a proportion.
  EXPECT_NEAR(static_cast<double>(up) / kN, 0.3, 5 * std::sqrt(0.3 * 0.7 / kN));

  // Intervals that begin in every place of a block of four, aligned and not.
  for (const int64_t first : {12344, 12345, 12346, 12347}) {
    for (const int64_t n : {1, 2, 3, 1001}) {
      for (int64_t offset : kOffsets) {
        Placed<float> part_x(device(), std::vector<float>(n, exact), offset);
        Placed<BFloat16> part_there(device(), std::vector<BFloat16>(n), offset);
        Launch(kernels().stochastic_cast, {part_there.data(), part_x.data(), n, key, first});
        const std::vector<BFloat16> part = part_there.Get();
        ASSERT_EQ(std::memcmp(part.data(), y.data() + first, 2 * part.size()), 0) << first;
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(part[i].bits,
                    0x3F80 + (0x4CCC + (RandomBits(key, 0, first + i) >> 16) > 0xFFFF));
        }
      }
    }
  }
}

TEST_P(VectorKernelsTest, StochasticCastKeepsWhatIsExactOrNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const float signalling = __builtin_bit_cast(float, 0x7F800001u);
  const std::vector<float> x = {0.0f, -1.5f, inf, -inf, std::nanf(""), signalling};
  Placed<float> x_there(device(), x);
  Placed<BFloat16> y_there(device(), std::vector<BFloat16>(6));
  for (uint32_t step = 0; step < 100; ++step) {
    Launch(kernels().stochastic_cast,
           {y_there.data(), x_there.data(), 6, {.seed = 1, .site = 0, .step = step}, 0});
    const std::vector<BFloat16> y = y_there.Get();
    for (int i = 0; i < 4; ++i) ASSERT_EQ(ToFloat(y[i]), x[i]);
    ASSERT_TRUE(std::isnan(ToFloat(y[4])));
    ASSERT_TRUE(std::isnan(ToFloat(y[5])));
  }
}

template <typename T>
void VectorKernelsTest::CheckSumSquares() {
  ForAllPlacements([&](int64_t n, int64_t offset) {
    const std::vector<T> x = Samples<T>(n);
    long double want = 0;
    for (T v : x) want += static_cast<long double>(ToFloat(v)) * ToFloat(v);
    Placed<T> there(device(), x, offset);
    Placed<double> scratch(device(), std::vector<double>(SumSquaresScratch(n)));
    Placed<double> sum(device(), {1.0});
    SumSquaresArgs args{there.data(), DTypeOf<T>::value, n, scratch.data(), sum.data(), false};
    Launch(kernels().sum_squares, args);
    const double got = sum.Get()[0];
    // Terms are positive: the error of n f64 additions is at most n ulps; in fact far less.
    ASSERT_NEAR(got, want, 1e-13 * want);
    args.accumulate = true;
    Launch(kernels().sum_squares, args);
    ASSERT_EQ(sum.Get()[0], 2 * got);
  });
}

TEST_P(VectorKernelsTest, SumSquares) {
  CheckSumSquares<float>();
  CheckSumSquares<double>();
  CheckSumSquares<BFloat16>();
  CheckSumSquares<Float16>();
}

TEST_P(VectorKernelsTest, SumSquaresDependsNeitherOnThreadsNorOnAlignment) {
  constexpr int64_t kN = 200003;
  const std::vector<float> x = Samples<float>(kN);
  Placed<double> scratch(device(), std::vector<double>(SumSquaresScratch(kN)));
  Placed<double> sum(device(), {0.0});
  double first = 0;
  for (int shift = 0; shift < 8; ++shift) {
    Placed<float> shifted(device(), x, shift);
    const WithThreads with(1 + shift % 3);
    Launch(kernels().sum_squares,
           {shifted.data(), DType::kF32, kN, scratch.data(), sum.data(), false});
    const double got = sum.Get()[0];
    if (shift == 0) first = got;
    EXPECT_EQ(got, first);
  }
}

template <typename T>
void VectorKernelsTest::CheckNonFinite(int64_t offset) {
  constexpr int64_t kN = 70001;
  std::vector<T> x = Samples<T>(kN);
  Placed<T> there(device(), x, offset);
  Placed<int32_t> flag(device(), {0});
  const auto run = [&](int64_t n, int32_t before) {
    flag.Set({before});
    Launch(kernels().non_finite, {there.data(), DTypeOf<T>::value, n, flag.data()});
    return flag.Get()[0];
  };
  EXPECT_EQ(run(kN, 0), 0);
  EXPECT_EQ(run(0, 4), 4);
  using C = ComputeType<T>;
  for (C bad : {std::numeric_limits<C>::infinity(), -std::numeric_limits<C>::infinity(),
                std::numeric_limits<C>::quiet_NaN()}) {
    for (int64_t at : {int64_t{0}, int64_t{33000}, kN - 1}) {
      const T good = x[at];
      x[at] = RoundTo<T>(bad);
      there.Set(x);
      EXPECT_EQ(run(kN, 4), 5);
      x[at] = good;
    }
  }
}

TEST_P(VectorKernelsTest, NonFinite) {
  for (int64_t offset : kOffsets) {
    CheckNonFinite<float>(offset);
    CheckNonFinite<double>(offset);
    CheckNonFinite<BFloat16>(offset);
    CheckNonFinite<Float16>(offset);
  }
}

// Five steps of torch.optim.AdamW in f64: tools/golden/adamw.py.
TEST_P(VectorKernelsTest, AdamWFollowsPyTorch) {
  const double want_p[] = {0.464438519611,  0.250829543924,  -0.0223241042223,
                           -0.240885452185, -0.516796239987, -0.736272470598};
  const double want_m[] = {0.06702, 0.03562875, 0.0879475, 0.01470125, 0.108875, -0.00622625};
  const double want_v[] = {0.0108408984375, 0.0165286083984, 0.0423958203125,
                           0.0556671435547, 0.102228125,     0.123083061523};
  constexpr int kN = 6;
  std::vector<float> start(kN);
  for (int i = 0; i < kN; ++i) start[i] = 0.5f - 0.25f * static_cast<float>(i);
  Placed<float> p_there(device(), start);
  Placed<float> m_there(device(), std::vector<float>(kN));
  Placed<float> v_there(device(), std::vector<float>(kN));
  Placed<float> factor(device(), {0.5f});
  for (int step = 0; step < 5; ++step) {
    std::vector<float> grad(kN);
    for (int i = 0; i < kN; ++i) {
      const double sign = (i + step) % 2 == 0 ? 1 : -1;
      // Four times the gradient: grad_scale and *grad_factor take it back, exactly.
      grad[i] = static_cast<float>(4 * (0.125 * (i + 1) * sign + 0.0625 * step));
    }
    Placed<float> grad_there(device(), grad);
    AdamWArgs a = AdamWDefaults();
    a.p = p_there.data();
    a.m = m_there.data();
    a.v = v_there.data();
    a.grad = grad_there.data();
    a.n = kN;
    a.bias_correction1 = 1 - std::pow(a.beta1, step + 1);
    a.bias_correction2 = 1 - std::pow(a.beta2, step + 1);
    a.grad_scale = 0.5;
    a.grad_factor = factor.data();
    Launch(kernels().adamw, a);
  }
  const std::vector<float> p = p_there.Get(), m = m_there.Get(), v = v_there.Get();
  for (int i = 0; i < kN; ++i) {  // a few f32 roundings in each of five steps
    EXPECT_NEAR(p[i], want_p[i], 5e-7 * (std::fabs(want_p[i]) + 0.01)) << i;
    EXPECT_NEAR(m[i], want_m[i], 1e-7) << i;
    EXPECT_NEAR(v[i], want_v[i], 5e-7 * want_v[i]) << i;
  }
}

namespace {

/// n elements of all that AdamW works on, on the host.
struct AdamWState {
  explicit AdamWState(int64_t n)
      : p(Samples<float>(n)), m(Samples<float>(n, 3)), v(Samples<float>(n, 9)), copy(n) {
    for (float& x : v) x *= x;
  }
  std::vector<float> p, m, v;
  std::vector<BFloat16> copy;
};

/// The same on a device, with a gradient.
struct AdamWPlaced {
  AdamWPlaced(Device& device, const AdamWState& s, const std::vector<float>& grads,
              int64_t offset = 0)
      : p(device, s.p, offset),
        m(device, s.m, offset),
        v(device, s.v, offset),
        grad(device, grads, offset),
        copy(device, s.copy, offset) {}
  AdamWArgs Args(int64_t from, int64_t count) {
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
  AdamWState Get() const {
    AdamWState s(0);
    s.p = p.Get();
    s.m = m.Get();
    s.v = v.Get();
    s.copy = copy.Get();
    return s;
  }
  Placed<float> p, m, v, grad;
  Placed<BFloat16> copy;
};

void ExpectAdamWStep(const AdamWState& before, const std::vector<float>& grad,
                     const AdamWArgs& args, const AdamWState& s) {
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = grad[i];
    const double m = 0.9 * before.m[i] + 0.1 * g;
    const double v = 0.95 * before.v[i] + 0.05 * g * g;
    const double p = before.p[i] * (1 - 0.001) - 0.01 / 0.1 * m / (std::sqrt(v / 0.05) + args.eps);
    // m cancels: its error is relative to its terms, and is divided by sqrt(v) in p.
    const double m_terms = std::fabs(0.9 * before.m[i]) + std::fabs(0.1 * g);
    ASSERT_NEAR(s.m[i], m, 2e-7 * m_terms);
    ASSERT_NEAR(s.v[i], v, 3e-7 * v);
    ASSERT_NEAR(s.p[i], p, 2e-7 * std::fabs(p) + 0.1 * 6e-7 * m_terms / std::sqrt(v / 0.05));
    const uint32_t bits = RandomBits(args.key, 0, i);
    ASSERT_EQ(s.copy[i].bits, args.rounding == Rounding::kNearest
                                  ? ToBFloat16(s.p[i]).bits
                                  : StochasticBFloat16(s.p[i], bits).bits);
  }
}

}  // namespace

TEST_P(VectorKernelsTest, AdamWMatchesTheFormulaAndRoundsItsCopy) {
  ForAllPlacements([&](int64_t n, int64_t offset) {
    for (Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      const AdamWState before(n);
      const std::vector<float> grad = Samples<float>(n, 20);
      AdamWPlaced there(device(), before, grad, offset);
      AdamWArgs a = there.Args(0, n);
      a.rounding = rounding;
      a.eps = 0.125;  // large enough to be seen
      Launch(kernels().adamw, a);
      ExpectAdamWStep(before, grad, a, there.Get());
    }
  });
}

TEST_P(VectorKernelsTest, AdamWCopiesInEveryDType) {
  constexpr int64_t kN = 1003;
  const std::vector<float> grad = Samples<float>(kN, 20);
  AdamWPlaced there(device(), AdamWState(kN), grad);
  Placed<float> copy_f32(device(), std::vector<float>(kN));
  Placed<Float16> copy_f16(device(), std::vector<Float16>(kN));
  AdamWArgs a = there.Args(0, kN);
  a.copy = copy_f32.data();
  a.copy_dtype = DType::kF32;
  Launch(kernels().adamw, a);
  PANDO_EXPECT_SAME_BITS(copy_f32.Get(), there.p.Get());
  a.copy = copy_f16.data();
  a.copy_dtype = DType::kF16;
  Launch(kernels().adamw, a);
  const std::vector<Float16> f16 = copy_f16.Get();
  const std::vector<float> p = there.p.Get();
  for (int64_t i = 0; i < kN; ++i) ASSERT_EQ(f16[i].bits, ToFloat16(p[i]).bits);
}

TEST_P(VectorKernelsTest, AdamWIsTheSameWhateverTheIntervalsAndThreads) {
  constexpr int64_t kN = 100003;
  const std::vector<float> grad = Samples<float>(kN, 20);
  AdamWPlaced whole(device(), AdamWState(kN), grad);
  AdamWArgs a = whole.Args(0, kN);
  a.rounding = Rounding::kStochastic;
  Launch(kernels().adamw, a);
  const WithThreads one(1);
  AdamWPlaced cut(device(), AdamWState(kN), grad);
  const int64_t cuts[] = {0, 1, 1003, 60000, kN};
  for (int k = 0; k < 4; ++k) {
    AdamWArgs part = cut.Args(cuts[k], cuts[k + 1] - cuts[k]);
    part.rounding = Rounding::kStochastic;
    Launch(kernels().adamw, part);
  }
  const AdamWState got_whole = whole.Get(), got_cut = cut.Get();
  PANDO_EXPECT_SAME_BITS(got_whole.p, got_cut.p);
  PANDO_EXPECT_SAME_BITS(got_whole.m, got_cut.m);
  PANDO_EXPECT_SAME_BITS(got_whole.v, got_cut.v);
  PANDO_EXPECT_SAME_BITS(got_whole.copy, got_cut.copy);
}

}  // namespace pando
