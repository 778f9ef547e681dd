#pragma once

// Numbers for kernel tests, and how far from the truth a kernel may land.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/cpu/parallel.h"
#include "engine/types.h"

namespace pando {

/// A reproducible number in [-scale, scale], without pattern for the eye.
inline double Sample(int64_t i, double scale = 1) {
  return scale * std::sin(1.0 + 12.9898 * static_cast<double>(i));
}

/// n Samples from `from` on, rounded to T.
template <typename T>
std::vector<T> Samples(int64_t n, int64_t from = 0, double scale = 1) {
  std::vector<T> x(n);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = RoundTo<T>(static_cast<ComputeType<T>>(Sample(i + from, scale)));
  }
  return x;
}

/// The same numbers in f64.
template <typename T>
std::vector<double> Doubles(const std::vector<T>& x) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = ToFloat(x[i]);
  return y;
}

/// Sizes of kernels that work row by row.
struct RowShape {
  int64_t rows;
  int64_t cols;
};

/// The largest relative error of rounding to T.
template <typename T>
constexpr double UnitRoundoff();
template <>
constexpr double UnitRoundoff<float>() {
  return 0x1p-24;
}
template <>
constexpr double UnitRoundoff<BFloat16>() {
  return 0x1p-8;
}
template <>
constexpr double UnitRoundoff<Float16>() {
  return 0x1p-11;
}
template <>
constexpr double UnitRoundoff<double>() {
  return 0x1p-53;
}

/// Fails unless every got[i] is want[i] computed with an error of at most `roundings` roundings of
/// the compute type at the magnitude `scale` of the intermediate values, and then rounded to T.
template <typename T>
void ExpectClose(const std::vector<T>& got, const std::vector<double>& want, double roundings,
                 double scale) {
  ASSERT_EQ(got.size(), want.size());
  const double computed = roundings * scale * UnitRoundoff<ComputeType<T>>();
  const double tiny = sizeof(T) == 2 ? 0x1p-25 : 0;  // half of f16's smallest step
  for (size_t i = 0; i < got.size(); ++i) {
    const double stored = UnitRoundoff<T>() * (std::fabs(want[i]) + computed);
    ASSERT_NEAR(ToFloat(got[i]), want[i], computed + stored + tiny) << "at " << i;
  }
}

/// Sets the number of threads for a scope.
class WithThreads {
 public:
  explicit WithThreads(int n) : before_(NumThreads()) { SetNumThreads(n); }
  ~WithThreads() { SetNumThreads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_;
};

/// What `run(problem)` makes of one and the same problem with one thread and with three.
template <typename Problem, typename F>
std::pair<Problem, Problem> WithOneAndThreeThreads(const Problem& problem, const F& run) {
  std::pair<Problem, Problem> results = {problem, problem};
  for (auto [p, threads] : {std::pair{&results.first, 1}, std::pair{&results.second, 3}}) {
    const WithThreads with(threads);
    run(*p);
  }
  return results;
}

/// d f / d x[i] of the scalar function f by central differences; x is left as it was.
template <typename F>
double Slope(std::vector<double>& x, size_t i, const F& f, double h = 1e-6) {
  const double at = x[i];
  x[i] = at + h;
  const double above = f();
  x[i] = at - h;
  const double below = f();
  x[i] = at;
  return (above - below) / (2 * h);
}

/// Fails unless each got[i] is d f / d x[i], by Slope, within `tolerance`.
template <typename F>
void ExpectSlopes(const std::vector<double>& got, std::vector<double>& x, const F& f,
                  double tolerance, double h = 1e-6) {
  ASSERT_EQ(got.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(got[i], Slope(x, i, f, h), tolerance) << "at " << i;
  }
}

/// The scalar that gradients are taken of: sum of y[i] * weight[i].
inline double Dot(const std::vector<double>& y, const std::vector<double>& weight) {
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * weight[i];
  return sum;
}

}  // namespace pando

/// Compares the bits of two vectors.
#define PANDO_EXPECT_SAME_BITS(a, b)                                                         \
  do {                                                                                       \
    ASSERT_EQ((a).size(), (b).size());                                                       \
    EXPECT_TRUE((a).empty() ||                                                               \
                __builtin_memcmp((a).data(), (b).data(), (a).size() * sizeof((a)[0])) == 0); \
  } while (false)
