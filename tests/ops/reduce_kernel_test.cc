#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "engine/error.h"
#include "ops/kernels/reduce.h"
#include "ops/strided.h"
#include "tests/isa_tables.h"
#include "tests/ops/naive.h"
#include "tests/samples.h"

namespace pando {
namespace {

class ReduceKernelTest : public testing::TestWithParam<IsaTable<ReduceKernels>> {
 protected:
  const ReduceKernels& kernels() const { return *GetParam().table; }
};

const float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

// Nothing, one element, six dimensions, long and short rows, sums cut into chunks.
const Sizes kShapes[] = {{},
                         {0, 3},
                         {3, 0},
                         {1, 1, 1},
                         {5},
                         {3, 4},
                         {2, 3, 4},
                         {40, 3, 50},
                         {37, 1000},
                         {1000, 37},
                         {140001},
                         {2, 70001},
                         {70001, 2},
                         {5000, 20},
                         {20, 5000},
                         {300, 500},
                         {2, 3, 2, 3, 2, 3}};

// Every set of dimensions of a shape, as bits.
uint32_t Sets(const Sizes& dims) { return 1u << dims.size(); }

Sizes Members(uint32_t set) {
  Sizes dims;
  for (int64_t d = 0; d < kMaxDims; ++d) {
    if ((set >> d & 1) != 0) dims.push_back(d);
  }
  return dims;
}

// Which output every element of x goes to, and its number among those that do.
struct Naive {
  Naive(const Sizes& x_dims, uint32_t set) {
    Sizes kept;
    Sizes rest;
    for (size_t d = 0; d < x_dims.size(); ++d) {
      (set >> d & 1 ? rest : kept).push_back(x_dims[d]);
    }
    outputs = Numel(kept);
    reduced = Numel(rest);
    for (int64_t i = 0; i < Numel(x_dims); ++i) {
      const Place at = Coordinates(x_dims, i);
      Place kept_at;
      Place rest_at;
      for (size_t d = 0; d < at.rank; ++d) (set >> d & 1 ? rest_at : kept_at).push_back(at[d]);
      output.push_back(ElementAt(kept, kept_at));
      term.push_back(ElementAt(rest, rest_at));
    }
  }
  int64_t outputs, reduced;
  std::vector<int64_t> output, term;
};

// Made once per shape and set, since they take long.
const Naive& NaiveOf(const Sizes& dims, uint32_t set) {
  static std::map<std::pair<Sizes, uint32_t>, Naive> made;
  return made.try_emplace({dims, set}, dims, set).first->second;
}

template <typename T, typename Y>
std::vector<Y> Sum(const ReduceKernels& kernels, const T* x, const ReduceIndex<1>& index,
                   std::vector<Y> y, bool accumulate, double divisor) {
  std::vector<double> scratch(SumScratch(Count(index.kept), Count(index.reduced)), kNaN);
  kernels.sum({DTypeOf<T>::value,
               x,
               index,
               {y.data(), DTypeOf<Y>::value, accumulate, divisor, scratch.data()}},
              nullptr);
  return y;
}

template <typename T, typename Y>
void CheckSum(const ReduceKernels& kernels, bool accumulate, bool mean) {
  for (const Sizes& dims : kShapes) {
    const std::vector<T> x = Samples<T>(Numel(dims));
    for (uint32_t set = 0; set < Sets(dims); ++set) {
      const Naive& naive = NaiveOf(dims, set);
      if (mean && naive.reduced == 0) continue;
      const double divisor = mean ? static_cast<double>(naive.reduced) : 1.0;
      const std::vector<Y> before = Samples<Y>(naive.outputs, 77);
      const std::vector<Y> y =
          Sum<T, Y>(kernels, x.data(), ReduceOver(dims, Members(set)), before, accumulate, divisor);
      NaiveSums want(naive.outputs);
      for (size_t i = 0; i < x.size(); ++i) want.Add(naive.output[i], ToFloat(x[i]));
      for (int64_t o = 0; o < naive.outputs; ++o) {
        want.sum[o] /= divisor;
        want.magnitude[o] /= divisor;
        if (accumulate) want.Add(o, ToFloat(before[o]));
      }
      ExpectSums<T>(y, want);
    }
  }
}

TEST_P(ReduceKernelTest, Sum) {
  CheckSum<float, float>(kernels(), false, false);
  CheckSum<BFloat16, BFloat16>(kernels(), false, false);
  CheckSum<BFloat16, float>(kernels(), true, false);
  CheckSum<Float16, float>(kernels(), false, false);
  CheckSum<double, double>(kernels(), true, false);
}

TEST_P(ReduceKernelTest, Mean) {
  CheckSum<float, float>(kernels(), true, true);
  CheckSum<BFloat16, BFloat16>(kernels(), false, true);
  CheckSum<double, double>(kernels(), false, true);
}

TEST_P(ReduceKernelTest, MeanOfNothingIsNaN) {
  const Sizes dims = {0};
  EXPECT_TRUE(std::isnan(
      Sum<float, float>(kernels(), nullptr, ReduceOver(dims, {0}), {1.0f}, false, 0)[0]));
}

TEST_P(ReduceKernelTest, LongSumsOfOnesAreExact) {
  // Past 2^24, where an f32 that counts stands still, and past 2^31 elements: all the same number.
  const float one = 1;
  constexpr int64_t kMany = (int64_t{1} << 31) + 6;
  const ReduceIndex<1> all = {{1, {1}, {}}, {1, {kMany}, {}}};
  const auto sum = Sum<float, double>(kernels(), &one, all, {0.0}, false, 1);
  EXPECT_EQ(sum[0], static_cast<double>(kMany));
  // The same across rows.
  const ReduceIndex<1> rows = {{1, {32}, {}}, {1, {(1 << 24) + 2}, {}}};
  for (const double y :
       Sum<float, double>(kernels(), &one, rows, std::vector<double>(32), false, 1)) {
    EXPECT_EQ(y, (1 << 24) + 2);
  }
}

TEST_P(ReduceKernelTest, ResultsDoNotDependOnThreads) {
  for (const Sizes& dims : kShapes) {
    const std::vector<float> x = Samples<float>(Numel(dims));
    for (uint32_t set = 0; set < Sets(dims); ++set) {
      const ReduceIndex<1> index = ReduceOver(dims, Members(set));
      const auto run = [&](int threads) {
        const WithThreads with(threads);
        return Sum<float, float>(kernels(), x.data(), index, std::vector<float>(Count(index.kept)),
                                 false, 1);
      };
      PANDO_EXPECT_SAME_BITS(run(1), run(2));
    }
  }
}

TEST_P(ReduceKernelTest, AnyStrides) {
  // Every second column, last row first.
  constexpr int64_t kRows = 70;
  constexpr int64_t kCols = 90;
  std::vector<float> x(kRows * kCols * 2);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17);
  const StridedIndex<1> cols = {1, {kCols}, {{2}}};
  const StridedIndex<1> rows = {1, {kRows}, {{-2 * kCols}}};
  const float* last_row = x.data() + (kRows - 1) * 2 * kCols;
  const auto to_cols =
      Sum<float, float>(kernels(), last_row, {cols, rows}, std::vector<float>(kCols), false, 1);
  const auto to_rows =
      Sum<float, float>(kernels(), last_row, {rows, cols}, std::vector<float>(kRows), false, 1);
  for (int64_t c = 0; c < kCols; ++c) {
    float want = 0;
    for (int64_t r = 0; r < kRows; ++r) want += x[(r * kCols + c) * 2];
    ASSERT_EQ(to_cols[c], want);  // small integers: exact
  }
  for (int64_t r = 0; r < kRows; ++r) {
    float want = 0;
    for (int64_t c = 0; c < kCols; ++c) want += x[((kRows - 1 - r) * kCols + c) * 2];
    ASSERT_EQ(to_rows[r], want);
  }
}

template <typename T>
struct MaxResult {
  std::vector<T> y;
  std::vector<int64_t> arg;
};

template <typename T>
MaxResult<T> Max(const ReduceKernels& kernels, const std::vector<T>& x,
                 const ReduceIndex<1>& index) {
  const int64_t n = Count(index.kept);
  MaxResult<T> result = {std::vector<T>(n), std::vector<int64_t>(n)};
  kernels.max({DTypeOf<T>::value, x.data(), result.y.data(), result.arg.data(), index}, nullptr);
  return result;
}

// Samples with many equal ones.
template <typename T>
std::vector<T> CoarseSamples(int64_t n) {
  std::vector<T> x(n);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = RoundTo<T>(static_cast<ComputeType<T>>(std::floor(Sample(i, 20))));
  }
  return x;
}

template <typename T>
void CheckMax(const ReduceKernels& kernels) {
  for (const Sizes& dims : kShapes) {
    const std::vector<T> x = CoarseSamples<T>(Numel(dims));
    for (uint32_t set = 0; set < Sets(dims); ++set) {
      const Naive& naive = NaiveOf(dims, set);
      const ReduceIndex<1> index = ReduceOver(dims, Members(set));
      const MaxResult<T> got = Max<T>(kernels, x, index);
      std::vector<double> want(naive.outputs, -kInf);
      std::vector<int64_t> arg(naive.outputs, 0);
      for (size_t i = 0; i < x.size(); ++i) {
        const int64_t o = naive.output[i];
        const double v = ToFloat(x[i]);
        if (v > want[o] || (v == want[o] && naive.term[i] < arg[o])) {
          want[o] = v;
          arg[o] = naive.term[i];
        }
      }
      EXPECT_EQ(Doubles(got.y), want);
      EXPECT_EQ(got.arg, arg);

      if (naive.reduced == 0) continue;
      const std::vector<T> dy = Samples<T>(naive.outputs, 5);
      std::vector<float> dx(x.size(), 0.5f);
      std::vector<double> want_dx(x.size(), 0.5);
      for (size_t i = 0; i < x.size(); ++i) {
        if (arg[naive.output[i]] == naive.term[i]) want_dx[i] += ToFloat(dy[naive.output[i]]);
      }
      if constexpr (sizeof(T) < 8) {
        kernels.max_backward(
            {DTypeOf<T>::value, dy.data(), got.arg.data(), dx.data(), DType::kF32, index}, nullptr);
        ExpectClose(dx, want_dx, 1, 2);
      }
    }
  }
}

TEST_P(ReduceKernelTest, MaxAndItsBackward) {
  CheckMax<float>(kernels());
  CheckMax<BFloat16>(kernels());
  CheckMax<Float16>(kernels());
  CheckMax<double>(kernels());
}

TEST_P(ReduceKernelTest, MaxOfSpecialValues) {
  // As a row, where rows are reduced, and as a column among 40.
  const std::vector<std::vector<float>> cases = {
      {1, kNaN, 3, kNaN}, {-kInf, -kInf, -kInf, -kInf}, {kInf, 2, kInf, 1}, {-kInf, -1, -2, -1}};
  const int64_t want[] = {1, 0, 0, 1};
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<float>& row = cases[i];
    const MaxResult<float> along = Max<float>(kernels(), row, ReduceOver({4}, {0}));
    EXPECT_EQ(along.arg[0], want[i]);
    EXPECT_EQ(__builtin_memcmp(&along.y[0], &row[want[i]], sizeof(float)), 0);
    std::vector<float> columns;
    for (const float v : row) columns.insert(columns.end(), 40, v);
    const MaxResult<float> across = Max<float>(kernels(), columns, ReduceOver({4, 40}, {0}));
    EXPECT_EQ(across.arg, std::vector<int64_t>(40, want[i]));
    EXPECT_EQ(__builtin_memcmp(&across.y[39], &row[want[i]], sizeof(float)), 0);
  }
}

TEST_P(ReduceKernelTest, UndocumentedDTypesThrow) {
  const float x = 1;
  int32_t y = 0;
  const ReduceIndex<1> one = {{1, {1}, {}}, {1, {1}, {}}};
  EXPECT_THROW(kernels().sum({DType::kF32, &x, one, {&y, DType::kI32, false, 1, nullptr}}, nullptr),
               InvalidArgument);
  EXPECT_THROW(kernels().sum({DType::kI32, &x, one, {&y, DType::kI32, false, 1, nullptr}}, nullptr),
               InvalidArgument);
}

TEST(CutReduction, CoversEverythingOnce) {
  for (const int64_t outputs : {0, 1, 2, 100, 4095, 4096, 1 << 20}) {
    for (const int64_t reduced : {0, 1, 31, 131072, 131073, 1 << 30}) {
      const ReduceChunks chunks = CutReduction(outputs, reduced);
      EXPECT_GE(chunks.count * chunks.length, reduced);
      EXPECT_LE(chunks.count, 128);
      if (chunks.count > 1) {
        EXPECT_LT((chunks.count - 1) * chunks.length, reduced);
      }
      EXPECT_LE(SumScratch(outputs, reduced), 4 << 17);
    }
  }
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(ReduceKernelTest, ReduceKernels, kReduceKernels);

}  // namespace pando
