#pragma once

// Matrix products as kernels get them, with operands of every dtype and the f64 sums they must
// equal.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/types.h"
#include "ops/kernels/matmul.h"
#include "tests/fewer_cases.h"

namespace pando {

/// What goes into a product and what comes out.
struct DTypes {
  DType input;
  DType output;
};

inline constexpr DTypes kMatmulDTypes[] = {
    {DType::kF32, DType::kF32},  {DType::kF64, DType::kF64}, {DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF32}, {DType::kF16, DType::kF16}, {DType::kF16, DType::kF32}};

struct MatmulShape {
  int64_t m, n, k;
};

/// An array of `size` elements of any floating dtype, read and written as double.
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
  size_t bytes() const { return bytes_.size(); }
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

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
/// Between the rows of C: must stay.
inline constexpr double kGap = 77.0;

/// Numbers of both signs between 0.02 and 1, none of which f32 sums exactly.
inline double MatmulSample(int64_t i) {
  const double x = std::sin(0.7 + 1.3 * static_cast<double>(i % 10007));
  return x + std::copysign(0.02, x);
}

/// `batch` matrices, `rows` x `columns` as stored; whatever lies between rows and matrices is
/// `gap`.
inline Array Matrices(DType dtype, int64_t batch, int64_t rows, int64_t columns, int64_t ld,
                      int64_t stride, double gap, int64_t seed) {
  Array x(dtype, (batch - 1) * stride + rows * ld);
  for (int64_t i = 0; i < (batch - 1) * stride + rows * ld; ++i) x.Set(i, gap);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        x.Set(b * stride + r * ld + c, MatmulSample(seed + (b * rows + r) * columns + c));
      }
    }
  }
  return x;
}

inline double UnitRoundoff(DType dtype) {
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

/// One product with its operands: sizes and options from `args`, leading dimensions `pad` above the
/// least, strides `pad` above a matrix.
struct MatmulProblem {
  MatmulProblem(MatmulArgs options, int64_t pad)
      : args(options),
        a(MakeA(pad)),
        b(MakeB(pad)),
        bias(Matrices(args.input_dtype, 1, 1, args.n, args.n, 0, kNaN, 3000)),
        c(MakeC(pad)),
        c_before(c) {}

  double A(int64_t batch, int64_t i, int64_t p) const {
    return a.Get(batch * args.stride_a + (args.transpose_a ? p * args.lda + i : i * args.lda + p));
  }
  double B(int64_t batch, int64_t p, int64_t j) const {
    return b.Get(batch * args.stride_b + (args.transpose_b ? j * args.ldb + p : p * args.ldb + j));
  }

  /// Against sums in f64. Sums of K products in any order, in a compute type of unit roundoff u,
  /// are
  // within (K + 1) u sum|a||b| of the true sum (Higham, "Accuracy and stability of numerical
  /// algorithms", 2nd ed., section 3.1), bias and old C are two terms more, and rounding to the
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

inline MatmulArgs MatmulOptionsOf(DTypes dtypes, MatmulShape shape, int64_t batch = 1) {
  MatmulArgs args = {};
  args.input_dtype = dtypes.input;
  args.output_dtype = dtypes.output;
  args.batch = batch;
  args.m = shape.m;
  args.n = shape.n;
  args.k = shape.k;
  return args;
}

/// All transposes, accumulation, bias; dense and with gaps (of fewer cases, each is in some). `run`
/// carries out a problem.
template <typename Run>
void CheckAllForms(const Run& run, DTypes dtypes, MatmulShape shape, int64_t batch) {
  for (int form = 0; form < 32; form += FewerCases() ? 7 : 1) {
    MatmulArgs args = MatmulOptionsOf(dtypes, shape, batch);
    args.transpose_a = (form & 1) != 0;
    args.transpose_b = (form & 2) != 0;
    args.accumulate = (form & 4) != 0;
    MatmulProblem problem(args, (form & 16) != 0 ? 5 : 0);
    problem.with_bias = (form & 8) != 0;
    SCOPED_TRACE(testing::Message()
                 << batch << " x " << shape.m << " x " << shape.n << " x " << shape.k << " "
                 << Name(dtypes.input) << " to " << Name(dtypes.output) << " form " << form);
    run(problem);
    problem.Check();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace pando
