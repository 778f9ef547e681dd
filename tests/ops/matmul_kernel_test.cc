#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/bounded_cache.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "ops/cpu/matmul_cpu.h"
#include "ops/kernels/matmul.h"

namespace pando {

namespace isa_v2 {
extern const MatmulKernels kPackedMatmul;
}
namespace isa_v3 {
extern const MatmulKernels kPackedMatmul;
}
namespace isa_v4 {
extern const MatmulKernels kPackedMatmul;
}

namespace {

struct NamedTable {
  std::string name;
  const MatmulKernels* table;
};

// What the CPU uses, and our own kernel at each level that this processor has.
std::vector<NamedTable> Tables() {
  std::vector<NamedTable> tables = {{"chosen", &CpuMatmulKernels()},
                                    {"packed_v2", &isa_v2::kPackedMatmul}};
  if (CurrentIsaLevel() >= IsaLevel::kV3) tables.push_back({"packed_v3", &isa_v3::kPackedMatmul});
  if (CurrentIsaLevel() >= IsaLevel::kV4) tables.push_back({"packed_v4", &isa_v4::kPackedMatmul});
  return tables;
}

class MatmulKernelTest : public testing::TestWithParam<NamedTable> {
 protected:
  const MatmulKernels& kernels() const { return *GetParam().table; }
};

INSTANTIATE_TEST_SUITE_P(Cpu, MatmulKernelTest, testing::ValuesIn(Tables()),
                         [](const auto& info) { return info.param.name; });

struct DTypes {
  DType input;
  DType output;
};

constexpr DTypes kDTypes[] = {{DType::kF32, DType::kF32},   {DType::kF64, DType::kF64},
                              {DType::kBF16, DType::kBF16}, {DType::kBF16, DType::kF32},
                              {DType::kF16, DType::kF16},   {DType::kF16, DType::kF32}};

struct Shape {
  int64_t m, n, k;
};

// An array of `size` elements of any floating dtype, read and written as double.
class Array {
 public:
  Array(DType dtype, int64_t size) : dtype_(dtype), bytes_(size * SizeOf(dtype)) {}

  double Get(int64_t i) const {
    switch (dtype_) {
      case DType::kF64:
        return As<double>()[i];
      case DType::kF32:
        return As<float>()[i];
      case DType::kBF16:
        return ToFloat(As<BFloat16>()[i]);
      default:
        return ToFloat(As<Float16>()[i]);
    }
  }

  void Set(int64_t i, double value) {
    const float f = static_cast<float>(value);
    switch (dtype_) {
      case DType::kF64:
        As<double>()[i] = value;
        break;
      case DType::kF32:
        As<float>()[i] = f;
        break;
      case DType::kBF16:
        As<BFloat16>()[i] = ToBFloat16(f);
        break;
      default:
        As<Float16>()[i] = ToFloat16(f);
    }
  }

  void* data() { return bytes_.data(); }
  bool operator==(const Array& other) const { return bytes_ == other.bytes_; }

 private:
  template <typename T>
  T* As() {
    return reinterpret_cast<T*>(bytes_.data());
  }
  template <typename T>
  const T* As() const {
    return reinterpret_cast<const T*>(bytes_.data());
  }

  DType dtype_;
  std::vector<char> bytes_;
};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kGap = 77.0;  // between the rows of C: must stay

// Numbers of both signs between 0.02 and 1, none of which f32 sums exactly.
double Sample(int64_t i) {
  const double x = std::sin(0.7 + 1.3 * static_cast<double>(i % 10007));
  return x + std::copysign(0.02, x);
}

// `batch` matrices, `rows` x `columns` as stored; whatever lies between rows and matrices is `gap`.
Array Matrices(DType dtype, int64_t batch, int64_t rows, int64_t columns, int64_t ld,
               int64_t stride, double gap, int64_t seed) {
  Array x(dtype, (batch - 1) * stride + rows * ld);
  for (int64_t i = 0; i < (batch - 1) * stride + rows * ld; ++i) x.Set(i, gap);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        x.Set(b * stride + r * ld + c, Sample(seed + (b * rows + r) * columns + c));
      }
    }
  }
  return x;
}

double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF32:
      return 0x1p-24;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return 0x1p-11;
  }
}

// Scratch of the size asked for, full of NaN and with a guard behind it.
class Scratch {
 public:
  explicit Scratch(int64_t bytes)
      : bytes_(bytes), data_(static_cast<char*>(std::aligned_alloc(256, (bytes / 256 + 2) * 256))) {
    std::memset(data_.get(), 0xFF, (bytes / 256 + 2) * 256);
  }
  void* data() { return bytes_ == 0 ? nullptr : data_.get(); }
  bool GuardIntact() const {
    for (int64_t i = bytes_; i < bytes_ + 64; ++i) {
      if (data_.get()[i] != static_cast<char>(0xFF)) return false;
    }
    return true;
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  int64_t bytes_;
  std::unique_ptr<char, Free> data_;
};

// One product with its operands: sizes and options from `args`, leading dimensions `pad` above the
// least, strides `pad` above a matrix.
struct Problem {
  Problem(MatmulArgs options, int64_t pad)
      : args(options),
        a(MakeA(pad)),
        b(MakeB(pad)),
        bias(Matrices(args.input_dtype, 1, 1, args.n, args.n, 0, kNaN, 3000)),
        c(MakeC(pad)),
        c_before(c) {}

  void Run(const MatmulKernels& kernels) {
    args.a = a.data();
    args.b = b.data();
    args.c = c.data();
    args.bias = with_bias ? bias.data() : nullptr;
    args.scratch_bytes = kernels.scratch_bytes(args);
    Scratch scratch(args.scratch_bytes);
    args.scratch = scratch.data();
    kernels.matmul(args, nullptr);
    EXPECT_TRUE(scratch.GuardIntact()) << "wrote past its scratch";
  }

  double A(int64_t batch, int64_t i, int64_t p) const {
    return a.Get(batch * args.stride_a + (args.transpose_a ? p * args.lda + i : i * args.lda + p));
  }
  double B(int64_t batch, int64_t p, int64_t j) const {
    return b.Get(batch * args.stride_b + (args.transpose_b ? j * args.ldb + p : p * args.ldb + j));
  }

  // Against sums in f64. Sums of K products in any order, in a compute type of unit roundoff u, are
  // within (K + 1) u sum|a||b| of the true sum (Higham, "Accuracy and stability of numerical
  // algorithms", 2nd ed., section 3.1), bias and old C are two terms more, and rounding to the
  // output is the last error.
  void Check() const {
    const double u = UnitRoundoff(args.input_dtype == DType::kF64 ? DType::kF64 : DType::kF32);
    int wrong = 0;
    for (int64_t batch = 0; batch < args.batch; ++batch) {
      for (int64_t i = 0; i < args.m; ++i) {
        for (int64_t j = 0; j < args.n; ++j) {
          const int64_t at = batch * args.stride_c + i * args.ldc + j;
          double sum = args.accumulate ? c_before.Get(at) : 0;
          double size = std::abs(sum);
          if (with_bias) sum += bias.Get(j), size += std::abs(bias.Get(j));
          for (int64_t p = 0; p < args.k; ++p) {
            const double product = A(batch, i, p) * B(batch, p, j);
            sum += product;
            size += std::abs(product);
          }
          // For f64 the reference errs as much as the kernel.
          const double in_sum = static_cast<double>(args.k + 3) * u * size *
                                (args.input_dtype == DType::kF64 ? 2 : 1);
          const double in_rounding = UnitRoundoff(args.output_dtype) * (std::abs(sum) + in_sum);
          const double error = std::abs(c.Get(at) - sum);
          if (!(error <= in_sum + in_rounding) && ++wrong <= 3) {
            ADD_FAILURE() << "batch " << batch << " (" << i << ", " << j << "): " << c.Get(at)
                          << " for " << sum << ", allowed " << in_sum + in_rounding;
          }
        }
      }
    }
    EXPECT_EQ(wrong, 0);
    CheckGaps();
  }

  void CheckGaps() const {
    Array restored = c;
    for (int64_t batch = 0; batch < args.batch; ++batch) {
      for (int64_t i = 0; i < args.m; ++i) {
        for (int64_t j = 0; j < args.n; ++j) {
          const int64_t at = batch * args.stride_c + i * args.ldc + j;
          restored.Set(at, c_before.Get(at));
        }
      }
    }
    EXPECT_TRUE(restored == c_before) << "wrote between rows";
  }

  MatmulArgs args;
  bool with_bias = false;
  Array a, b, bias, c, c_before;

 private:
  Array MakeA(int64_t pad) {
    const int64_t rows = args.transpose_a ? args.k : args.m;
    const int64_t columns = args.transpose_a ? args.m : args.k;
    args.lda = columns + pad;
    args.stride_a = rows * args.lda + pad;
    return Matrices(args.input_dtype, args.batch, rows, columns, args.lda, args.stride_a, kNaN, 0);
  }
  Array MakeB(int64_t pad) {
    const int64_t rows = args.transpose_b ? args.n : args.k;
    const int64_t columns = args.transpose_b ? args.k : args.n;
    args.ldb = columns + pad;
    args.stride_b = rows * args.ldb + pad;
    return Matrices(args.input_dtype, args.batch, rows, columns, args.ldb, args.stride_b, kNaN,
                    1000);
  }
  // NaN where the old C must not be read.
  Array MakeC(int64_t pad) {
    args.ldc = args.n + pad;
    args.stride_c = args.m * args.ldc + pad;
    Array made = Matrices(args.output_dtype, args.batch, args.m, args.n, args.ldc, args.stride_c,
                          kGap, 2000);
    for (int64_t b = 0; b < args.batch && !args.accumulate; ++b) {
      for (int64_t i = 0; i < args.m; ++i) {
        for (int64_t j = 0; j < args.n; ++j) made.Set(b * args.stride_c + i * args.ldc + j, kNaN);
      }
    }
    return made;
  }
};

MatmulArgs Options(DTypes dtypes, Shape shape, int64_t batch = 1) {
  MatmulArgs args = {};
  args.input_dtype = dtypes.input;
  args.output_dtype = dtypes.output;
  args.batch = batch;
  args.m = shape.m;
  args.n = shape.n;
  args.k = shape.k;
  return args;
}

// All transposes, accumulation, bias; dense and with gaps.
void CheckAllForms(const MatmulKernels& kernels, DTypes dtypes, Shape shape, int64_t batch) {
  for (int form = 0; form < 32; ++form) {
    MatmulArgs args = Options(dtypes, shape, batch);
    args.transpose_a = (form & 1) != 0;
    args.transpose_b = (form & 2) != 0;
    args.accumulate = (form & 4) != 0;
    Problem problem(args, (form & 16) != 0 ? 5 : 0);
    problem.with_bias = (form & 8) != 0;
    SCOPED_TRACE(testing::Message()
                 << batch << " x " << shape.m << " x " << shape.n << " x " << shape.k << " "
                 << Name(dtypes.input) << " to " << Name(dtypes.output) << " form " << form);
    problem.Run(kernels);
    problem.Check();
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(MatmulKernelTest, SmallAndOddSizes) {
  const Shape shapes[] = {{1, 1, 1},   {1, 7, 5},    {7, 1, 3},    {13, 1, 1},   {2, 3, 257},
                          {1, 67, 64}, {13, 17, 19}, {64, 48, 32}, {25, 33, 513}};
  for (const DTypes& dtypes : kDTypes) {
    for (const Shape& shape : shapes) CheckAllForms(kernels(), dtypes, shape, 1);
  }
}

// More than one block and more than one thread's task in each dimension.
TEST_P(MatmulKernelTest, SizesBeyondOneBlock) {
  const Shape shapes[] = {{967, 5, 3}, {3, 2053, 4}, {101, 523, 67}};
  for (const DTypes& dtypes : kDTypes) {
    for (const Shape& shape : shapes) CheckAllForms(kernels(), dtypes, shape, 1);
  }
}

// Large enough for blocks of rows, with a last block of its own size.
TEST_P(MatmulKernelTest, LargeWeightGradients) {
  for (const DTypes& dtypes :
       {DTypes{DType::kBF16, DType::kF32}, DTypes{DType::kF32, DType::kF32}}) {
    MatmulArgs args = Options(dtypes, {961, 1203, 5});
    args.transpose_a = true;
    args.accumulate = true;
    Problem problem(args, 0);
    problem.Run(kernels());
    problem.Check();
  }
}

TEST_P(MatmulKernelTest, Batches) {
  for (const DTypes& dtypes : kDTypes) {
    CheckAllForms(kernels(), dtypes, {5, 6, 7}, 3);
    CheckAllForms(kernels(), dtypes, {33, 16, 40}, 2);
  }
}

// A stride of 0 repeats a matrix.
TEST_P(MatmulKernelTest, OneMatrixForAWholeBatch) {
  for (const DTypes& dtypes : kDTypes) {
    for (const bool repeat_a : {false, true}) {
      Problem problem(Options(dtypes, {9, 11, 13}, 3), 0);
      (repeat_a ? problem.args.stride_a : problem.args.stride_b) = 0;
      problem.Run(kernels());
      problem.Check();
    }
  }
}

TEST_P(MatmulKernelTest, EmptySizes) {
  for (const DTypes& dtypes : kDTypes) {
    for (const Shape& shape : {Shape{0, 3, 4}, Shape{3, 0, 4}, Shape{3, 4, 0}}) {
      CheckAllForms(kernels(), dtypes, shape, 1);
      CheckAllForms(kernels(), dtypes, shape, 2);
    }
    Problem none(Options(dtypes, {3, 4, 5}), 0);
    none.args.batch = 0;
    none.Run(kernels());
    EXPECT_TRUE(none.c == none.c_before);
  }
}

TEST_P(MatmulKernelTest, RepeatsToTheBit) {
  for (const DTypes& dtypes : kDTypes) {
    Problem first(Options(dtypes, {130, 300, 700}), 0);
    Problem second = first;
    first.Run(kernels());
    second.Run(kernels());
    EXPECT_TRUE(first.c == second.c) << Name(dtypes.input);
  }
}

TEST_P(MatmulKernelTest, RefusesDTypesThatDoNotFit) {
  for (const DTypes& dtypes :
       {DTypes{DType::kF32, DType::kBF16}, DTypes{DType::kBF16, DType::kF16},
        DTypes{DType::kF64, DType::kF32}, DTypes{DType::kI32, DType::kI32}}) {
    MatmulArgs args = Options(dtypes, {1, 1, 1});
    args.lda = args.ldb = args.ldc = 1;
    double a = 0, b = 0, c = 0;
    args.a = &a;
    args.b = &b;
    args.c = &c;
    Scratch scratch(1 << 16);
    args.scratch = scratch.data();
    args.scratch_bytes = 1 << 16;
    EXPECT_THROW(kernels().matmul(args, nullptr), InvalidArgument)
        << Name(dtypes.input) << " to " << Name(dtypes.output);
  }
}

TEST(PackedMatmulTest, DoesNotDependOnThreads) {
  const int threads = NumThreads();
  for (const DTypes& dtypes : kDTypes) {
    Problem one(Options(dtypes, {200, 1100, 600}), 0);
    Problem three = one;
    SetNumThreads(1);
    one.Run(CpuPackedMatmulKernels());
    SetNumThreads(3);
    three.Run(CpuPackedMatmulKernels());
    EXPECT_TRUE(one.c == three.c) << Name(dtypes.input);
  }
  SetNumThreads(threads);
}

TEST(CpuMatmulTest, MakesAPrimitiveOnceForEachProduct) {
  const auto run = [](int64_t k) {
    MatmulArgs args = Options({DType::kF32, DType::kF32}, {21, 22, k});
    args.transpose_b = true;  // for a plain B there is no primitive
    Problem(args, 0).Run(CpuMatmulKernels());
  };
  run(40);
  const int64_t before = bounded_cache_creations.load();
  run(40);
  EXPECT_EQ(bounded_cache_creations.load(), before);
  run(41);
  EXPECT_EQ(bounded_cache_creations.load(), before + 1);
}

TEST(CpuMatmulTest, RefusesTooLittleScratch) {
  Problem problem(Options({DType::kF64, DType::kF64}, {3, 4, 5}), 0);
  problem.args.a = problem.a.data();
  problem.args.b = problem.b.data();
  problem.args.c = problem.c.data();
  EXPECT_THROW(CpuMatmulKernels().matmul(problem.args, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace pando
