#include <gtest/gtest.h>

#include <vector>

#include "ops/kernels/where.h"
#include "ops/strided.h"
#include "tests/isa_tables.h"
#include "tests/ops/naive.h"
#include "tests/samples.h"

namespace pando {
namespace {

class WhereKernelTest : public testing::TestWithParam<IsaTable<WhereKernels>> {
 protected:
  const WhereKernels& kernels() const { return *GetParam().table; }
};

struct Shapes {
  Sizes cond, a, b;
};
const Shapes kShapes[] = {{{}, {}, {}},
                          {{5}, {}, {5}},
                          {{4, 7}, {3, 4, 7}, {}},  // a causal mask over a batch
                          {{3, 1, 1201}, {2, 1}, {1201}},
                          {{0, 2}, {2}, {1}},
                          {{70001}, {70001}, {1}}};

// Any bit pattern: elements are moved, never computed with.
template <typename T>
std::vector<T> Patterns(int64_t n, int64_t from) {
  std::vector<T> x(n);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = static_cast<uint64_t>(i + from) * 0x9E3779B97F4A7C15u;
    __builtin_memcpy(&x[i], &bits, sizeof(T));
  }
  return x;
}

std::vector<int32_t> Conditions(int64_t n) {
  std::vector<int32_t> cond(n);
  for (int64_t i = 0; i < n; ++i) cond[i] = Sample(i) > 0 ? (i % 2 == 0 ? 1 : -7) : 0;
  return cond;
}

template <typename T>
void CheckForward(const WhereKernels& kernels) {
  for (const Shapes& s : kShapes) {
    const Sizes dims = BroadcastOf(s.cond, BroadcastOf(s.a, s.b));
    const std::vector<int32_t> cond = Conditions(Numel(s.cond));
    const std::vector<T> a = Patterns<T>(Numel(s.a), 0);
    const std::vector<T> b = Patterns<T>(Numel(s.b), 1000000);
    std::vector<T> y(Numel(dims));
    kernels.forward({DTypeOf<T>::value, y.data(), cond.data(), a.data(), b.data(),
                     Collapsed(BroadcastIndex<3>(dims, {Dims(s.cond), Dims(s.a), Dims(s.b)}))},
                    nullptr);
    std::vector<T> want(y.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const Place at = Coordinates(dims, static_cast<int64_t>(i));
      want[i] = cond[ElementAt(s.cond, at)] != 0 ? a[ElementAt(s.a, at)] : b[ElementAt(s.b, at)];
    }
    PANDO_EXPECT_SAME_BITS(y, want);
  }
}

TEST_P(WhereKernelTest, Forward) {
  CheckForward<float>(kernels());
  CheckForward<BFloat16>(kernels());
  CheckForward<Float16>(kernels());
  CheckForward<double>(kernels());
  CheckForward<int32_t>(kernels());
  CheckForward<int64_t>(kernels());
}

template <typename T, typename Out>
void CheckBackward(const WhereKernels& kernels, bool accumulate) {
  for (const Shapes& s : kShapes) {
    const Sizes dims = BroadcastOf(s.cond, BroadcastOf(s.a, s.b));
    const std::vector<int32_t> cond = Conditions(Numel(s.cond));
    const std::vector<T> dy = Samples<T>(Numel(dims));
    for (int operand = 0; operand < 2; ++operand) {
      const Sizes& x = operand == 0 ? s.a : s.b;
      const auto index = ReduceBroadcast<2>(dims, x, {Dims(dims), Dims(s.cond)});
      std::vector<double> scratch(SumScratch(Count(index.kept), Count(index.reduced)));
      std::vector<Out> dx = Samples<Out>(Numel(x), 40);
      NaiveSums want(Numel(x));
      for (int64_t i = 0; accumulate && i < Numel(x); ++i) want.Add(i, ToFloat(dx[i]));
      kernels.backward({operand,
                        DTypeOf<T>::value,
                        dy.data(),
                        cond.data(),
                        index,
                        {dx.data(), DTypeOf<Out>::value, accumulate, 1.0, scratch.data()}},
                       nullptr);
      for (size_t i = 0; i < dy.size(); ++i) {
        const Place at = Coordinates(dims, static_cast<int64_t>(i));
        if ((cond[ElementAt(s.cond, at)] != 0) == (operand == 0)) {
          want.Add(ElementAt(x, at), ToFloat(dy[i]));
        }
      }
      ExpectSums<T>(dx, want);
    }
  }
}

TEST_P(WhereKernelTest, Backward) {
  CheckBackward<float, float>(kernels(), true);
  CheckBackward<BFloat16, BFloat16>(kernels(), false);
  CheckBackward<BFloat16, float>(kernels(), true);
  CheckBackward<Float16, Float16>(kernels(), false);
  CheckBackward<double, double>(kernels(), false);
}

TEST_P(WhereKernelTest, WhatIsNotTakenMayBeInfinite) {
  const float inf = __builtin_inff();
  const int32_t cond[] = {0, 1};
  const float dy[] = {inf, 3};
  float dx[2];
  const StridedIndex<2> pair = {1, {2}, {{1}, {1}}};
  const StridedIndex<2> none = {1, {1}, {}};
  kernels().backward({0, DType::kF32, dy, cond, {pair, none}, {dx, DType::kF32, false, 1, nullptr}},
                     nullptr);
  EXPECT_EQ(dx[0], 0);
  EXPECT_EQ(dx[1], 3);
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(WhereKernelTest, WhereKernels, kWhereKernels);

}  // namespace pando
