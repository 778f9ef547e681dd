#pragma once

// Shapes the slow way: what kernels and index boxes are checked against.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/kernels/strided.h"
#include "tests/samples.h"

namespace pando {

using Sizes = std::vector<int64_t>;

inline int64_t Numel(const Sizes& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

/// A place in a tensor: one index per dimension.
struct Place {
  std::array<int64_t, kMaxDims> at{};
  size_t rank = 0;
  int64_t& operator[](size_t d) { return at[d]; }
  int64_t operator[](size_t d) const { return at[d]; }
  void push_back(int64_t i) { at[rank++] = i; }
};

/// Where element number `flat` of a row-major tensor lies.
inline Place Coordinates(const Sizes& dims, int64_t flat) {
  Place place;
  place.rank = dims.size();
  for (size_t d = dims.size(); d-- > 0;) {
    place[d] = flat % dims[d];
    flat /= dims[d];
  }
  return place;
}

/// The number of the element at `place` in a row-major tensor that was broadcast to more or larger
/// dimensions.
inline int64_t ElementAt(const Sizes& dims, const Place& place) {
  int64_t flat = 0;
  const size_t missing = place.rank - dims.size();
  for (size_t d = 0; d < dims.size(); ++d) {
    flat = flat * dims[d] + (dims[d] == 1 ? 0 : place[d + missing]);
  }
  return flat;
}

/// Sums as they should be, and those of the magnitudes of their terms, by which errors are judged.
struct NaiveSums {
  explicit NaiveSums(int64_t n) : sum(n), magnitude(n) {}
  void Add(int64_t i, double term) {
    sum[i] += term;
    magnitude[i] += std::fabs(term);
  }
  std::vector<long double> sum;
  std::vector<double> magnitude;
};

/// Fails unless every got[i] is the sum, with an error of 16 roundings of its terms' type X
/// relative to their magnitudes, and rounded to Y. That allows for 3 roundings in each term and the
/// additions of a run of 256, but not for 2^17 terms added one after another.
template <typename X, typename Y>
void ExpectSums(const std::vector<Y>& got, const NaiveSums& want) {
  ASSERT_EQ(got.size(), want.sum.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const auto sum = static_cast<double>(want.sum[i]);
    const double computed = 16 * UnitRoundoff<ComputeType<X>>() * want.magnitude[i];
    const double stored = UnitRoundoff<Y>() * (std::fabs(sum) + computed);
    const double tiny = sizeof(Y) == 2 ? 0x1p-25 : 0;  // half of f16's smallest step
    const double error = std::fabs(ToFloat(got[i]) - sum);
    if (!(error <= computed + stored + tiny)) {  // ASSERT_NEAR takes longer than the sum
      FAIL() << "element " << i << " is " << ToFloat(got[i]) << ", not " << sum;
    }
  }
}

/// NumPy's broadcast of two shapes known to fit.
inline Sizes BroadcastOf(const Sizes& a, const Sizes& b) {
  Sizes out = a.size() > b.size() ? a : b;
  for (size_t d = 0; d < out.size(); ++d) {
    const auto size = [&](const Sizes& dims) {
      const size_t missing = out.size() - dims.size();
      return d < missing ? 1 : dims[d - missing];
    };
    out[d] = size(a) == 1 ? size(b) : size(a);
  }
  return out;
}

}  // namespace pando
