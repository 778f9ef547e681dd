#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/error.h"
#include "ops/kernels/copy.h"
#include "ops/strided.h"
#include "tests/isa_tables.h"
#include "tests/ops/naive.h"
#include "tests/samples.h"

namespace pando {
namespace {

class CopyKernelTest : public testing::TestWithParam<IsaTable<CopyKernels>> {
 protected:
  const CopyKernels& kernels() const { return *GetParam().table; }
};

// Every element different, as far as its size allows.
template <typename T>
std::vector<T> Patterns(int64_t n, int64_t from = 0) {
  std::vector<T> x(n);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = static_cast<uint64_t>(i + from + 1) * 0x9E3779B97F4A7C15u;
    __builtin_memcpy(&x[i], &bits, sizeof(T));
  }
  return x;
}

template <typename T>
void CheckPermute(const CopyKernels& kernels, const Sizes& dims, const Sizes& permutation) {
  const std::vector<T> x = Patterns<T>(Numel(dims));
  Sizes y_dims(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) y_dims[d] = dims[permutation[d]];
  std::vector<T> want(x.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const Place y_at = Coordinates(y_dims, static_cast<int64_t>(i));
    Place x_at = y_at;
    for (size_t d = 0; d < dims.size(); ++d) x_at[permutation[d]] = y_at[d];
    want[i] = x[ElementAt(dims, x_at)];
  }
  std::vector<T> y(x.size());
  kernels.copy({DTypeOf<T>::value, y.data(), x.data(), PermuteIndex(dims, permutation)}, nullptr);
  PANDO_EXPECT_SAME_BITS(y, want);
}

// Empty, scalar, tiles of 32 with all kinds of edges, six dimensions, several tasks.
const Sizes kShapes[] = {
    {},      {0, 3},      {5},          {32, 64},       {33, 65},           {1, 70},
    {70, 1}, {3, 40, 70}, {2, 3, 4, 5}, {7, 33, 2, 31}, {2, 3, 2, 3, 2, 3}, {150, 301}};

TEST_P(CopyKernelTest, EveryPermutation) {
  for (const Sizes& dims : kShapes) {
    Sizes permutation(dims.size());
    std::iota(permutation.begin(), permutation.end(), 0);
    do {
      CheckPermute<float>(kernels(), dims, permutation);
      CheckPermute<BFloat16>(kernels(), dims, permutation);
      CheckPermute<int64_t>(kernels(), dims, permutation);
    } while (std::next_permutation(permutation.begin(), permutation.end()));
  }
}

TEST_P(CopyKernelTest, EveryDType) {
  CheckPermute<Float16>(kernels(), {33, 40}, {1, 0});
  CheckPermute<double>(kernels(), {33, 40}, {1, 0});
  CheckPermute<int32_t>(kernels(), {33, 40}, {1, 0});
}

template <typename T>
void CheckSliceAndConcat(const CopyKernels& kernels, const Sizes& dims, int64_t dim) {
  // Cut into three, one of them empty; each part is the slice; the parts put together are x.
  const int64_t size = dims[dim];
  const int64_t cuts[] = {0, size / 3, size / 3, size};
  const std::vector<T> x = Patterns<T>(Numel(dims));
  std::vector<T> together(x.size());
  for (int part = 0; part < 3; ++part) {
    const int64_t start = cuts[part];
    const int64_t length = cuts[part + 1] - start;
    const SliceIndex slice = MakeSliceIndex(dims, dim, start, length);
    Sizes part_dims = dims;
    part_dims[dim] = length;
    std::vector<T> y(Numel(part_dims) + 1);
    y.back() = Patterns<T>(1, 12345)[0];  // one beyond: must stay
    std::vector<T> want = y;
    kernels.copy({DTypeOf<T>::value, y.data(), x.data() + slice.offset, slice.index}, nullptr);
    for (int64_t i = 0; i < Numel(part_dims); ++i) {
      Place at = Coordinates(part_dims, i);
      at[dim] += start;
      want[i] = x[ElementAt(dims, at)];
    }
    PANDO_EXPECT_SAME_BITS(y, want);
    kernels.copy(
        {DTypeOf<T>::value, together.data() + slice.offset, y.data(), Swapped(slice.index)},
        nullptr);
  }
  PANDO_EXPECT_SAME_BITS(together, x);
}

TEST_P(CopyKernelTest, SliceAndConcat) {
  for (const Sizes& dims : kShapes) {
    for (size_t d = 0; d < dims.size(); ++d) {
      CheckSliceAndConcat<float>(kernels(), dims, static_cast<int64_t>(d));
      CheckSliceAndConcat<BFloat16>(kernels(), dims, static_cast<int64_t>(d));
      CheckSliceAndConcat<int64_t>(kernels(), dims, static_cast<int64_t>(d));
    }
  }
}

TEST_P(CopyKernelTest, Broadcasts) {
  const Sizes from = {3, 1, 1700};
  const Sizes to = {2, 3, 4, 1700};
  const std::vector<float> x = Patterns<float>(Numel(from));
  std::vector<float> y(Numel(to));
  std::vector<float> want(Numel(to));
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] = x[ElementAt(from, Coordinates(to, static_cast<int64_t>(i)))];
  }
  const auto index = Collapsed(BroadcastIndex<2>(to, {Dims(to), Dims(from)}));
  kernels().copy({DType::kF32, y.data(), x.data(), index}, nullptr);
  PANDO_EXPECT_SAME_BITS(y, want);
}

template <typename Y, typename X>
void CheckAddInto(const CopyKernels& kernels) {
  for (const Sizes& dims : kShapes) {
    for (size_t d = 0; d < dims.size(); ++d) {
      const int64_t start = dims[d] / 4;
      const int64_t length = dims[d] - start - dims[d] / 3;
      const SliceIndex slice = MakeSliceIndex(dims, static_cast<int64_t>(d), start, length);
      Sizes part_dims = dims;
      part_dims[d] = length;
      const std::vector<X> x = Samples<X>(Numel(part_dims));
      std::vector<Y> y = Samples<Y>(Numel(dims), 500);
      std::vector<double> want = Doubles(y);
      for (int64_t i = 0; i < Numel(part_dims); ++i) {
        Place at = Coordinates(part_dims, i);
        at[d] += start;
        want[ElementAt(dims, at)] += ToFloat(x[i]);
      }
      kernels.add_into({y.data() + slice.offset, DTypeOf<Y>::value, x.data(), DTypeOf<X>::value,
                        Swapped(slice.index)},
                       nullptr);
      ExpectClose(y, want, 1, 2);
    }
  }
}

TEST_P(CopyKernelTest, AddInto) {
  CheckAddInto<float, float>(kernels());
  CheckAddInto<BFloat16, BFloat16>(kernels());
  CheckAddInto<Float16, Float16>(kernels());
  CheckAddInto<double, double>(kernels());
  CheckAddInto<float, BFloat16>(kernels());
  CheckAddInto<float, Float16>(kernels());
}

TEST_P(CopyKernelTest, AddIntoATranspose) {
  constexpr int64_t kRows = 65;
  constexpr int64_t kCols = 1201;
  const std::vector<float> x = Samples<float>(kRows * kCols);
  std::vector<float> y(kRows * kCols, 1.0f);
  kernels().add_into(
      {y.data(), DType::kF32, x.data(), DType::kF32, Swapped(PermuteIndex({kRows, kCols}, {1, 0}))},
      nullptr);
  for (int64_t c = 0; c < kCols; ++c) {
    for (int64_t r = 0; r < kRows; ++r) {
      ASSERT_EQ(y[r * kCols + c], 1.0f + x[c * kRows + r]);
    }
  }
}

TEST_P(CopyKernelTest, UndocumentedDTypesThrow) {
  double y = 0;
  const StridedIndex<2> one = {1, {1}, {}};
  EXPECT_THROW(kernels().add_into({&y, DType::kF32, &y, DType::kF64, one}, nullptr),
               InvalidArgument);
  EXPECT_THROW(kernels().add_into({&y, DType::kBF16, &y, DType::kF32, one}, nullptr),
               InvalidArgument);
  EXPECT_THROW(kernels().integer_cast({&y, DType::kF32, &y, DType::kF64, 1}, nullptr),
               InvalidArgument);
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(CopyKernelTest, CopyKernels, kCopyKernels);

}  // namespace pando
