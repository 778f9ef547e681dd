// Matrices of more than 2^31 elements, where a 32-bit index overflows. 4.5 to 9 GB of memory each,
// so this test runs only when asked for by name: bazel test //tests/ops:matmul_large_index_test
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "engine/cpu/parallel.h"
#include "ops/cpu/matmul_cpu.h"

namespace pando {
namespace {

// Wider than a tile and no multiple of one; kLong * kWide > 2^31.
constexpr int64_t kLong = 50304;
constexpr int64_t kWide = 43003;
constexpr int64_t kNarrow = 5;
static_assert(kLong * kWide > (int64_t{1} << 31));

// Small integers, so that sums are exact in any order: A(i, p) = (i % 5 - 2) (p % 3 - 1), and
// B(p, j) = (p % 3 - 1) (j % 7 - 3).
float RowFactor(int64_t i) { return static_cast<float>(i % 5 - 2); }
float DepthFactor(int64_t p) { return static_cast<float>(p % 3 - 1); }
float ColumnFactor(int64_t j) { return static_cast<float>(j % 7 - 3); }

void Put(float value, float* to) { *to = value; }
void Put(float value, BFloat16* to) { *to = ToBFloat16(value); }

// Memory that malloc need not clear, filled by all threads: element (r, c) = row(r) column(c).
template <typename T>
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns, float (*row)(int64_t), float (*column)(int64_t))
      : columns_(columns), data_(static_cast<T*>(std::malloc(rows * columns * sizeof(T)))) {
    if (data_ == nullptr) return;
    ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < columns; ++c)
          Put(row(r) * column(c), &data_.get()[r * columns + c]);
      }
    });
  }
  T* data() const { return data_.get(); }
  float Get(int64_t r, int64_t c) const { return ToFloat(data_.get()[r * columns_ + c]); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  int64_t columns_;
  std::unique_ptr<T, Free> data_;
};

float Zero(int64_t /*i*/) { return 0.0f; }

template <typename T>
void Check(const MatmulKernels& kernels, int64_t m, int64_t n, int64_t k, bool transpose_a,
           bool transpose_b) {
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " " << Name(DTypeOf<T>::value)
                                  << " transposes " << transpose_a << transpose_b);
  const Matrix<T> a = transpose_a ? Matrix<T>(k, m, DepthFactor, RowFactor)
                                  : Matrix<T>(m, k, RowFactor, DepthFactor);
  const Matrix<T> b = transpose_b ? Matrix<T>(n, k, ColumnFactor, DepthFactor)
                                  : Matrix<T>(k, n, DepthFactor, ColumnFactor);
  const Matrix<float> c(m * n > (int64_t{1} << 31) ? 0 : m, n, Zero, Zero);
  const bool narrow_c = m * n > (int64_t{1} << 31);  // a C in T takes half the memory
  const Matrix<T> c_narrow(narrow_c ? m : 0, n, Zero, Zero);
  MatmulArgs args = {};
  args.a = a.data();
  args.b = b.data();
  args.c = narrow_c ? static_cast<void*>(c_narrow.data()) : c.data();
  args.input_dtype = DTypeOf<T>::value;
  args.output_dtype = narrow_c ? DTypeOf<T>::value : DType::kF32;
  args.transpose_a = transpose_a;
  args.transpose_b = transpose_b;
  args.batch = 1;
  args.m = m;
  args.n = n;
  args.k = k;
  args.lda = transpose_a ? m : k;
  args.ldb = transpose_b ? k : n;
  args.ldc = n;
  args.scratch_bytes = kernels.scratch_bytes(args);
  const std::unique_ptr<void, decltype(&std::free)> scratch(
      std::aligned_alloc(64, (args.scratch_bytes / 64 + 1) * 64), &std::free);
  if (args.a == nullptr || args.b == nullptr || args.c == nullptr || scratch == nullptr) {
    GTEST_SKIP() << "not enough memory";
  }
  args.scratch = scratch.get();
  kernels.matmul(args, nullptr);
  float depth = 0;
  for (int64_t p = 0; p < k; ++p) depth += DepthFactor(p) * DepthFactor(p);
  int64_t wrong = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const float got = narrow_c ? c_narrow.Get(i, j) : c.Get(i, j);
      if (got != RowFactor(i) * ColumnFactor(j) * depth) ++wrong;
    }
  }
  EXPECT_EQ(wrong, 0);
}

class MatmulLargeIndexTest : public testing::TestWithParam<const MatmulKernels*> {};

INSTANTIATE_TEST_SUITE_P(Cpu, MatmulLargeIndexTest,
                         testing::Values(&CpuMatmulKernels(), &CpuPackedMatmulKernels()));

TEST_P(MatmulLargeIndexTest, LargeA) {
  for (const bool transpose : {false, true}) {
    Check<BFloat16>(*GetParam(), kLong, kNarrow, kWide, transpose, false);
  }
}

TEST_P(MatmulLargeIndexTest, LargeB) {
  for (const bool transpose : {false, true}) {
    Check<BFloat16>(*GetParam(), kNarrow, kLong, kWide, false, transpose);
  }
}

TEST_P(MatmulLargeIndexTest, LargeC) {
  Check<BFloat16>(*GetParam(), kLong, kWide, kNarrow, false, false);
  Check<BFloat16>(*GetParam(), kLong, kWide, kNarrow, false, true);
}

TEST_P(MatmulLargeIndexTest, LargeF32) {
  Check<float>(*GetParam(), kLong, kNarrow, kWide, false, false);
  Check<float>(*GetParam(), kLong, kNarrow, kWide, true, false);
  Check<float>(*GetParam(), kNarrow, kLong, kWide, false, true);
}

}  // namespace
}  // namespace pando
