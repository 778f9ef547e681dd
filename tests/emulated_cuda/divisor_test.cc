#include "ops/cuda/divisor.h"

#include <gtest/gtest.h>

#include <vector>

namespace pando {
namespace {

TEST(Divisor, DividesAsDivisionDoes) {
  std::vector<int64_t> numbers = {INT64_MAX, INT64_MAX - 1, INT64_MAX / 2, INT64_MAX / 3};
  for (int64_t n = 0; n < 70; ++n) numbers.push_back(n);
  for (int bit = 7; bit < 63; ++bit) {
    for (const int64_t near : {-1, 0, 1, 12345}) numbers.push_back((int64_t{1} << bit) + near);
  }
  for (const int64_t d : numbers) {
    if (d == 0) continue;
    const Divisor divisor = MakeDivisor(d);
    for (const int64_t a : numbers) {
      ASSERT_EQ(Quotient(a, divisor), a / d) << a << " / " << d;
      // Just below, at and above a multiple.
      const int64_t multiple = a / d * d;
      ASSERT_EQ(Quotient(multiple, divisor), a / d) << multiple << " / " << d;
      if (multiple == 0) continue;
      ASSERT_EQ(Quotient(multiple - 1, divisor), a / d - 1) << a << " / " << d;
    }
  }
}

}  // namespace
}  // namespace pando
