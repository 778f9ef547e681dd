// Matrix products on whichever device is linked, called as kernels: leading dimensions, strides and
// dtypes that operations don't use, data that are not aligned, and what is fused with a product.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/error.h"
#include "ops/kernel_tables.h"
#include "tests/ops/device_array.h"
#include "tests/ops/matmul_problem.h"

namespace pando {
namespace {

const MatmulKernels& Kernels() { return matmul_kernels.For(TestDevice()); }

/// A copy of an array on the device, `shift` bytes behind an aligned address.
class OnDevice {
 public:
  explicit OnDevice(Array& array, int64_t shift = 0) : array_(array), shift_(shift) {
    const auto bytes = static_cast<int64_t>(array.bytes());
    tensor_ = Tensor::Empty({(bytes + shift + 3) / 4}, DType::kI32, TestDevice(), "test");
    stream().Copy(data(), array.data(), bytes, CopyKind::kHostToDevice);
    stream().Synchronize();
  }
  void* data() { return static_cast<char*>(tensor_.mutable_data()) + shift_; }
  void CopyBack() {
    stream().Copy(array_.data(), data(), static_cast<int64_t>(array_.bytes()),
                  CopyKind::kDeviceToHost);
    stream().Synchronize();
  }

 private:
  static Stream& stream() { return TestDevice().current_stream(); }

  Array& array_;
  int64_t shift_;
  Tensor tensor_;
};

/// What a fusion reads and writes besides.
struct Extras {
  explicit Extras(const MatmulArgs& args)
      : aux(Matrices(args.output_dtype, 1, args.m, args.n, args.n, 0, 0, 5000)),
        sums(Matrices(args.output_dtype, 1, std::max(args.m, args.n), 1, 1, 0, 0, 0)) {}
  Array aux, sums;
  bool with_aux = true;
};

bool HasSums(MatmulFusion fusion) {
  return fusion == MatmulFusion::kSumsOfA || fusion == MatmulFusion::kSumsOfB;
}

/// Carries out the problem; with `extras`, only if its fusion is offered: else returns false.
bool Multiply(MatmulProblem& problem, int64_t shift = 0, Extras* extras = nullptr) {
  OnDevice a(problem.a, shift), b(problem.b, shift), c(problem.c, shift), bias(problem.bias);
  Array nothing(DType::kF32, 0);
  OnDevice aux(extras == nullptr ? nothing : extras->aux);
  OnDevice sums(extras == nullptr ? nothing : extras->sums);
  MatmulArgs args = problem.args;
  args.a = a.data();
  args.b = b.data();
  args.c = c.data();
  args.bias = problem.with_bias ? bias.data() : nullptr;
  if (extras != nullptr) {
    (HasSums(args.fusion) ? args.sums : args.aux) =
        HasSums(args.fusion) ? sums.data() : (extras->with_aux ? aux.data() : nullptr);
    if (Kernels().fuses == nullptr || !Kernels().fuses(args)) return false;
  }
  args.scratch_bytes = Kernels().scratch_bytes(args);
  Tensor scratch;
  if (args.scratch_bytes > 0) {
    scratch = Tensor::Empty({args.scratch_bytes / 4}, DType::kI32, TestDevice(), "scratch");
    args.scratch = scratch.mutable_data();
  }
  LaunchOnTestDevice(Kernels().matmul, args);
  c.CopyBack();
  if (extras != nullptr) {
    aux.CopyBack();
    sums.CopyBack();
  }
  return true;
}

void CheckAll(DTypes dtypes, MatmulShape shape, int64_t batch) {
  CheckAllForms([](MatmulProblem& p) { Multiply(p); }, dtypes, shape, batch);
}

TEST(MatmulDeviceTest, SmallAndOddSizes) {
  const MatmulShape shapes[] = {{1, 1, 1},   {1, 7, 5},    {7, 1, 3},
                                {2, 3, 257}, {13, 17, 19}, {16, 24, 32}};
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const MatmulShape& shape : shapes) CheckAll(dtypes, shape, 1);
  }
}

TEST(MatmulDeviceTest, LargerSizes) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const MatmulShape& shape : {MatmulShape{267, 5, 3}, {3, 1053, 4}, {101, 123, 67}}) {
      MatmulProblem problem(MatmulOptionsOf(dtypes, shape), 0);
      Multiply(problem);
      problem.Check();
    }
  }
}

TEST(MatmulDeviceTest, Batches) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    CheckAll(dtypes, {5, 6, 7}, 3);
    CheckAll(dtypes, {33, 16, 40}, 2);
  }
}

TEST(MatmulDeviceTest, OneMatrixForAWholeBatch) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const bool repeat_a : {false, true}) {
      MatmulProblem problem(MatmulOptionsOf(dtypes, {9, 11, 13}, 3), 0);
      (repeat_a ? problem.args.stride_a : problem.args.stride_b) = 0;
      Multiply(problem);
      problem.Check();
    }
  }
}

TEST(MatmulDeviceTest, EmptySizes) {
  for (const DTypes& dtypes : {DTypes{DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}}) {
    for (const MatmulShape& shape : {MatmulShape{0, 3, 4}, {3, 0, 4}, {3, 4, 0}}) {
      CheckAll(dtypes, shape, 1);
      CheckAll(dtypes, shape, 2);
    }
  }
}

// What is left of a product without terms; more elements than one block has threads.
TEST(MatmulDeviceTest, NoTerms) {
  for (const DTypes& dtypes : kMatmulDTypes) CheckAll(dtypes, {97, 7, 0}, 2);
}

// Algorithms are chosen for the alignment that operands have.
TEST(MatmulDeviceTest, OperandsOfAnyAlignment) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const int64_t shift : {8, 16, 24, 48}) {
      MatmulProblem problem(MatmulOptionsOf(dtypes, {8, 16, 24}), 0);
      problem.with_bias = true;
      Multiply(problem, shift);
      problem.Check();
    }
  }
}

TEST(MatmulDeviceTest, RefusesDTypesThatDoNotFit) {
  for (const DTypes& dtypes :
       {DTypes{DType::kF32, DType::kBF16}, DTypes{DType::kBF16, DType::kF16},
        DTypes{DType::kF64, DType::kF32}, DTypes{DType::kI32, DType::kI32}}) {
    MatmulArgs args = MatmulOptionsOf(dtypes, {1, 1, 1});
    args.lda = args.ldb = args.ldc = 1;
    EXPECT_THROW(LaunchOnTestDevice(Kernels().matmul, args), InvalidArgument) << Name(dtypes.input);
  }
}

// --- Fusions, where the device has them --------------------------------------------------------

constexpr DTypes kNarrow[] = {{DType::kBF16, DType::kBF16}, {DType::kF16, DType::kF16}};

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double GeluSlope(double x) {
  constexpr double kStep = 1e-4;
  return (Gelu(x + kStep) - Gelu(x - kStep)) / (2 * kStep);
}

double Product(const MatmulProblem& problem, int64_t i, int64_t j) {
  double sum = problem.with_bias ? problem.bias.Get(j) : 0;
  for (int64_t p = 0; p < problem.args.k; ++p) sum += problem.A(0, i, p) * problem.B(0, p, j);
  return sum;
}

// GPUs' own tanh errs by up to 2^-11 (PTX, tanh.approx.f32), of which GELU takes |x| / 2 and its
// slope, with x below 4 here, less than 2.
constexpr double kTanhError = 0x1p-11;

TEST(MatmulFusionTest, GeluKeepsItsInput) {
  for (const DTypes& dtypes : kNarrow) {
    for (const bool bias : {false, true}) {
      for (const bool keep : {false, true}) {
        MatmulArgs args = MatmulOptionsOf(dtypes, {5, 16, 7});
        args.fusion = MatmulFusion::kGelu;
        MatmulProblem problem(args, 0);
        problem.with_bias = bias;
        Extras extras(args);
        extras.with_aux = keep;
        if (!Multiply(problem, 0, &extras)) GTEST_SKIP() << "not offered on this device";
        const double u = UnitRoundoff(dtypes.output);
        for (int64_t i = 0; i < 5; ++i) {
          for (int64_t j = 0; j < 16; ++j) {
            const double s = Product(problem, i, j);
            EXPECT_NEAR(problem.c.Get(i * 16 + j), Gelu(s),
                        u * std::abs(Gelu(s)) + kTanhError * std::abs(s) / 2 + 1e-5);
            if (!keep) continue;
            EXPECT_NEAR(extras.aux.Get(i * 16 + j), s, u * std::abs(s) + 1e-5);
          }
        }
      }
    }
  }
}

TEST(MatmulFusionTest, GeluGradient) {
  for (const DTypes& dtypes : kNarrow) {
    MatmulArgs args = MatmulOptionsOf(dtypes, {6, 24, 5});
    args.fusion = MatmulFusion::kGeluGradient;
    args.transpose_b = true;
    MatmulProblem problem(args, 0);
    Extras extras(args);
    if (!Multiply(problem, 0, &extras)) GTEST_SKIP() << "not offered on this device";
    for (int64_t i = 0; i < 6; ++i) {
      for (int64_t j = 0; j < 24; ++j) {
        const double product = Product(problem, i, j);
        const double want = product * GeluSlope(extras.aux.Get(i * 24 + j));
        EXPECT_NEAR(problem.c.Get(i * 24 + j), want,
                    UnitRoundoff(dtypes.output) * std::abs(want) +
                        2 * kTanhError * std::abs(product) + 1e-5);
      }
    }
  }
}

// The gradient of a bias beside a weight's, in both layouts; the product accumulates, sums don't.
TEST(MatmulFusionTest, SumsOfRowsAndColumns) {
  for (const DTypes& dtypes : {DTypes{DType::kBF16, DType::kF32},
                               {DType::kF16, DType::kF32},
                               {DType::kF32, DType::kF32}}) {
    for (const bool of_a : {false, true}) {
      MatmulArgs args = MatmulOptionsOf(dtypes, {8, 16, 24});
      args.transpose_a = true;
      args.accumulate = true;
      args.fusion = of_a ? MatmulFusion::kSumsOfA : MatmulFusion::kSumsOfB;
      MatmulProblem problem(args, 0);
      Extras extras(args);
      if (!Multiply(problem, 0, &extras)) GTEST_SKIP() << "not offered on this device";
      problem.Check();
      for (int64_t i = 0; i < (of_a ? 8 : 16); ++i) {
        double want = 0;
        for (int64_t p = 0; p < 24; ++p) want += of_a ? problem.A(0, i, p) : problem.B(0, p, i);
        // 24 terms of up to 1, in f32.
        EXPECT_NEAR(extras.sums.Get(i), want, 24 * 24 * 0x1p-24);
      }
    }
  }
}

}  // namespace
}  // namespace pando
