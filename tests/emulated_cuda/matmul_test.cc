// Matrix products of ops/cuda on the stand-in for cuBLASLt: against f64 sums, with the epilogues
// one by one, and with faults that must be caught.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/bounded_cache.h"
#include "engine/cuda/check.h"
#include "engine/error.h"
#include "ops/cuda/tables.h"
#include "ops/kernels/tf32.h"
#include "tests/emulated_cuda/emulated_cuda.h"
#include "tests/ops/matmul_problem.h"

namespace pando {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A copy of an array on the device, ending, to within 16 bytes, where memory ends.
class OnDevice {
 public:
  explicit OnDevice(Array& array, int64_t shift = 0) : array_(array) {
    CheckCuda(cudaMalloc(&base_, array.bytes() + static_cast<size_t>(shift)), "cudaMalloc");
    data_ = static_cast<char*>(base_) + shift;
    CheckCuda(cudaMemcpy(data_, array.data(), array.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~OnDevice() { (void)cudaFree(base_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  void* data() const { return data_; }
  void CopyBack() {
    CheckCuda(cudaMemcpy(array_.data(), data_, array_.bytes(), cudaMemcpyDeviceToHost),
              "cudaMemcpy");
  }

 private:
  Array& array_;
  void* base_ = nullptr;
  void* data_ = nullptr;
};

class CudaMatmulTest : public testing::Test {
 protected:
  CudaMatmulTest() { Use(80); }
  ~CudaMatmulTest() override {
    Free();
    allow_tf32 = false;
  }

  /// An emulated machine of this capability; a stream of it, and scratch for all products.
  void Use(int capability) {
    Free();
    emulated_cuda::Configure({.compute_capability = capability});
    CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    const MatmulArgs any = MatmulOptionsOf({DType::kF32, DType::kF32}, {1, 1, 1});
    CheckCuda(cudaMalloc(&scratch_, static_cast<size_t>(kCudaMatmul.scratch_bytes(any))),
              "cudaMalloc");
  }
  void Free() {
    (void)cudaFree(scratch_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  /// Queues the product, with scratch, and waits.
  void Launch(MatmulArgs args) {
    args.scratch_bytes = kCudaMatmul.scratch_bytes(args);
    if (args.scratch_bytes > 0) args.scratch = scratch_;
    kCudaMatmul.matmul(args, stream_);
    CheckCuda(cudaStreamSynchronize(stream_), "multiplying");
  }

  /// Carries out the problem; operands lie `shift` bytes behind an aligned address. `fault` may
  /// spoil the arguments.
  template <typename Fault>
  void Multiply(MatmulProblem& problem, int64_t shift, const Fault& fault) {
    OnDevice a(problem.a, shift), b(problem.b, shift), c(problem.c, shift), bias(problem.bias);
    MatmulArgs args = problem.args;
    args.a = a.data();
    args.b = b.data();
    args.c = c.data();
    args.bias = problem.with_bias ? bias.data() : nullptr;
    fault(args);
    Launch(args);
    c.CopyBack();
  }
  void Multiply(MatmulProblem& problem, int64_t shift = 0) {
    Multiply(problem, shift, [](MatmulArgs&) {});
  }
  void CheckAll(DTypes dtypes, MatmulShape shape, int64_t batch) {
    CheckAllForms([this](MatmulProblem& p) { Multiply(p); }, dtypes, shape, batch);
  }

  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
};

TEST_F(CudaMatmulTest, SmallAndOddSizes) {
  const MatmulShape shapes[] = {{1, 1, 1},   {1, 7, 5},    {7, 1, 3},
                                {2, 3, 257}, {13, 17, 19}, {16, 24, 32}};
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const MatmulShape& shape : shapes) CheckAll(dtypes, shape, 1);
  }
}

TEST_F(CudaMatmulTest, LargerSizes) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const MatmulShape& shape : {MatmulShape{267, 5, 3}, {3, 1053, 4}, {101, 123, 67}}) {
      MatmulProblem problem(MatmulOptionsOf(dtypes, shape), 0);
      Multiply(problem);
      problem.Check();
    }
  }
}

TEST_F(CudaMatmulTest, Batches) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    CheckAll(dtypes, {5, 6, 7}, 3);
    CheckAll(dtypes, {33, 16, 40}, 2);
  }
}

TEST_F(CudaMatmulTest, OneMatrixForAWholeBatch) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const bool repeat_a : {false, true}) {
      MatmulProblem problem(MatmulOptionsOf(dtypes, {9, 11, 13}, 3), 0);
      (repeat_a ? problem.args.stride_a : problem.args.stride_b) = 0;
      Multiply(problem);
      problem.Check();
    }
  }
}

TEST_F(CudaMatmulTest, EmptySizes) {
  for (const DTypes& dtypes : {DTypes{DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}}) {
    for (const MatmulShape& shape : {MatmulShape{0, 3, 4}, {3, 0, 4}, {3, 4, 0}}) {
      CheckAll(dtypes, shape, 1);
      CheckAll(dtypes, shape, 2);
    }
  }
}

// What is left of a product without terms; more elements than one block has threads.
TEST_F(CudaMatmulTest, NoTerms) {
  for (const DTypes& dtypes : kMatmulDTypes) CheckAll(dtypes, {97, 7, 0}, 2);
}

// Algorithms are chosen for the alignment that operands have.
TEST_F(CudaMatmulTest, OperandsOfAnyAlignment) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const int64_t shift : {8, 16, 24, 48}) {
      MatmulProblem problem(MatmulOptionsOf(dtypes, {8, 16, 24}), 0);
      problem.with_bias = true;
      Multiply(problem, shift);
      problem.Check();
    }
  }
}

TEST_F(CudaMatmulTest, RefusesDTypesThatDoNotFit) {
  for (const DTypes& dtypes :
       {DTypes{DType::kF32, DType::kBF16}, DTypes{DType::kBF16, DType::kF16},
        DTypes{DType::kF64, DType::kF32}, DTypes{DType::kI32, DType::kI32}}) {
    MatmulArgs args = MatmulOptionsOf(dtypes, {1, 1, 1});
    args.lda = args.ldb = args.ldc = 1;
    EXPECT_THROW(Launch(args), InvalidArgument) << Name(dtypes.input);
  }
}

// Rounding inputs to 10 bits errs by up to 2^-11 of each: far beyond f32's bound, within its own.
TEST_F(CudaMatmulTest, Tf32OnlyWhenAsked) {
  const auto largest_error = [this](bool tf32) {
    allow_tf32 = tf32;
    MatmulProblem problem(MatmulOptionsOf({DType::kF32, DType::kF32}, {16, 16, 64}), 0);
    Multiply(problem);
    double largest = 0;
    for (int64_t i = 0; i < 16; ++i) {
      for (int64_t j = 0; j < 16; ++j) {
        double sum = 0, size = 0;
        for (int64_t p = 0; p < 64; ++p) {
          sum += problem.A(0, i, p) * problem.B(0, p, j);
          size += std::abs(problem.A(0, i, p) * problem.B(0, p, j));
        }
        largest = std::max(largest, std::abs(problem.c.Get(i * 16 + j) - sum) / size);
      }
    }
    return largest;
  };
  EXPECT_LT(largest_error(false), 67 * 0x1p-24);
  const double tf32 = largest_error(true);
  EXPECT_GT(tf32, 0x1p-16);
  EXPECT_LT(tf32, 0x1p-9);
}

TEST_F(CudaMatmulTest, MakesDescriptorsOnceForEachProduct) {
  const auto run = [this](int64_t k) {
    MatmulProblem problem(MatmulOptionsOf({DType::kBF16, DType::kF32}, {21, 22, k}), 0);
    Multiply(problem);
  };
  run(40);
  const int64_t made = bounded_cache_creations.load();
  const int64_t objects = emulated_cuda::GetCounters().library_objects;
  run(40);
  EXPECT_EQ(bounded_cache_creations.load(), made);
  EXPECT_EQ(emulated_cuda::GetCounters().library_objects, objects);
  run(48);
  EXPECT_EQ(bounded_cache_creations.load(), made + 1);
}

TEST_F(CudaMatmulTest, WorkspaceIsWhatTheNewestDeviceWants) {
  const MatmulArgs args = MatmulOptionsOf({DType::kF32, DType::kF32}, {3, 4, 5});
  for (const auto& [capability, mib] : {std::pair{75, 8}, {80, 8}, {89, 8}, {90, 32}, {120, 32}}) {
    Use(capability);
    EXPECT_EQ(kCudaMatmul.scratch_bytes(args), int64_t{mib} << 20) << capability;
  }
  EXPECT_EQ(kCudaMatmul.scratch_bytes(MatmulOptionsOf({DType::kF32, DType::kF32}, {3, 4, 0})), 0);
}

TEST_F(CudaMatmulTest, RefusesTooLittleScratch) {
  MatmulArgs args = MatmulOptionsOf({DType::kF32, DType::kF32}, {3, 4, 5});
  args.scratch_bytes = 1 << 20;
  EXPECT_THAT([&] { kCudaMatmul.matmul(args, stream_); },
              ThrowsMessage<InvalidArgument>(HasSubstr("bytes of scratch")));
}

// --- Epilogues ---------------------------------------------------------------------------------

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/// A product with dense operands, and room for what fusions add.
struct FusedProblem {
  FusedProblem(MatmulArgs options, MatmulFusion fusion)
      : problem(options, 0),
        aux(Matrices(options.output_dtype, 1, options.m, options.n, options.n, 0, 0, 5000)),
        sums(Matrices(options.output_dtype, 1, std::max(options.m, options.n), 1, 1, 0, 0, 0)) {
    problem.args.fusion = fusion;
  }
  MatmulProblem problem;
  Array aux, sums;
  bool with_aux = true;
  bool offered = false;
};

class CudaMatmulFusionTest : public CudaMatmulTest {
 protected:
  CudaMatmulFusionTest() { Use(90); }

  /// Runs it if the table offers it.
  void Fuse(FusedProblem& f) {
    OnDevice aux(f.aux), sums(f.sums);
    const MatmulFusion fusion = f.problem.args.fusion;
    const bool has_sums = fusion == MatmulFusion::kSumsOfA || fusion == MatmulFusion::kSumsOfB;
    Multiply(f.problem, 0, [&](MatmulArgs& args) {
      args.aux = has_sums || !f.with_aux ? nullptr : aux.data();
      args.sums = has_sums ? sums.data() : nullptr;
      f.offered = kCudaMatmul.fuses(args);
      if (!f.offered) args.m = 0;
    });
    aux.CopyBack();
    sums.CopyBack();
  }

  static double Product(const FusedProblem& f, int64_t i, int64_t j) {
    double sum = f.problem.with_bias ? f.problem.bias.Get(j) : 0;
    for (int64_t p = 0; p < f.problem.args.k; ++p) {
      sum += f.problem.A(0, i, p) * f.problem.B(0, p, j);
    }
    return sum;
  }
};

constexpr DTypes kNarrow[] = {{DType::kBF16, DType::kBF16}, {DType::kF16, DType::kF16}};

TEST_F(CudaMatmulFusionTest, GeluKeepsItsInput) {
  for (const DTypes& dtypes : kNarrow) {
    for (const bool bias : {false, true}) {
      for (const bool keep : {false, true}) {
        FusedProblem f(MatmulOptionsOf(dtypes, {5, 16, 7}), MatmulFusion::kGelu);
        f.problem.with_bias = bias;
        f.with_aux = keep;
        Fuse(f);
        ASSERT_TRUE(f.offered);
        const double u = UnitRoundoff(dtypes.output);
        for (int64_t i = 0; i < 5; ++i) {
          for (int64_t j = 0; j < 16; ++j) {
            const double s = Product(f, i, j);
            // Nothing is rounded but what is stored: u of it, and a little of the sum in f32.
            EXPECT_NEAR(f.problem.c.Get(i * 16 + j), Gelu(s), u * std::abs(Gelu(s)) + 1e-5);
            if (keep) {
              EXPECT_NEAR(f.aux.Get(i * 16 + j), s, u * std::abs(s) + 1e-5);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS), 0);
}

TEST_F(CudaMatmulFusionTest, GeluGradient) {
  for (const DTypes& dtypes : kNarrow) {
    FusedProblem f(MatmulOptionsOf(dtypes, {6, 24, 5}), MatmulFusion::kGeluGradient);
    f.problem.args.transpose_b = true;
    f.problem = MatmulProblem(f.problem.args, 0);
    Fuse(f);
    ASSERT_TRUE(f.offered);
    for (int64_t i = 0; i < 6; ++i) {
      for (int64_t j = 0; j < 24; ++j) {
        constexpr double kStep = 1e-4;
        const double at = f.aux.Get(i * 24 + j);
        const double slope = (Gelu(at + kStep) - Gelu(at - kStep)) / (2 * kStep);
        const double want = Product(f, i, j) * slope;
        EXPECT_NEAR(f.problem.c.Get(i * 24 + j), want,
                    UnitRoundoff(dtypes.output) * std::abs(want) + 1e-5);
      }
    }
  }
}

// The gradient of a bias beside a weight's, in both layouts; the product accumulates, sums don't.
TEST_F(CudaMatmulFusionTest, SumsOfRowsAndColumns) {
  for (const DTypes& dtypes : {DTypes{DType::kBF16, DType::kF32},
                               {DType::kF16, DType::kF32},
                               {DType::kF32, DType::kF32}}) {
    for (const bool of_a : {false, true}) {
      MatmulArgs args = MatmulOptionsOf(dtypes, {5, 7, 19});
      args.transpose_a = true;
      args.accumulate = true;
      FusedProblem f(args, of_a ? MatmulFusion::kSumsOfA : MatmulFusion::kSumsOfB);
      Fuse(f);
      ASSERT_TRUE(f.offered);
      f.problem.Check();
      for (int64_t i = 0; i < (of_a ? 5 : 7); ++i) {
        double want = 0;
        for (int64_t p = 0; p < 19; ++p) want += of_a ? f.problem.A(0, i, p) : f.problem.B(0, p, i);
        EXPECT_NEAR(f.sums.Get(i), want, 1e-6 * 19);
      }
    }
  }
}

TEST_F(CudaMatmulFusionTest, OffersOnlyWhatTheLibraryHasAndIsWorthIt) {
  const auto offers = [this](DTypes dtypes, MatmulShape shape, MatmulFusion fusion, int64_t batch) {
    FusedProblem f(MatmulOptionsOf(dtypes, shape, batch), fusion);
    if (batch > 1) f.with_aux = false;
    Fuse(f);
    return f.offered;
  };
  const DTypes bf16 = {DType::kBF16, DType::kBF16}, f32 = {DType::kF32, DType::kF32};
  EXPECT_TRUE(offers(bf16, {4, 8, 8}, MatmulFusion::kGelu, 1));
  EXPECT_FALSE(offers(bf16, {4, 9, 8}, MatmulFusion::kGelu, 1)) << "leading dimension of aux";
  EXPECT_FALSE(offers(bf16, {4, 8, 0}, MatmulFusion::kGelu, 1)) << "no product";
  EXPECT_FALSE(offers(bf16, {4, 8, 8}, MatmulFusion::kGelu, 2)) << "batch";
  EXPECT_FALSE(offers(f32, {4, 8, 8}, MatmulFusion::kGelu, 1)) << "accuracy";
  EXPECT_FALSE(offers(bf16, {4, 8, 8}, MatmulFusion::kSumsOfA, 1)) << "sums in bf16";
  Use(89);
  EXPECT_FALSE(offers(bf16, {4, 8, 8}, MatmulFusion::kGelu, 1)) << "before Hopper";
}

// --- Faults ------------------------------------------------------------------------------------

class CudaMatmulFaultTest : public CudaMatmulTest {
 protected:
  /// Runs a problem with a fault: whether the result is right. Throws if the fault is refused.
  template <typename Fault>
  bool IsRight(MatmulShape shape, const Fault& fault) {
    MatmulProblem problem(MatmulOptionsOf({DType::kF32, DType::kF32}, shape), 0);
    Multiply(problem, 0, fault);
    double wrong = 0;
    for (int64_t i = 0; i < shape.m; ++i) {
      for (int64_t j = 0; j < shape.n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < shape.k; ++p) sum += problem.A(0, i, p) * problem.B(0, p, j);
        const double error = std::abs(problem.c.Get(i * problem.args.ldc + j) - sum);
        if (!(error < 1e-5)) ++wrong;
      }
    }
    return wrong == 0;
  }
};

TEST_F(CudaMatmulFaultTest, NoFault) {
  EXPECT_TRUE(IsRight({8, 8, 8}, [](MatmulArgs&) {}));
}

TEST_F(CudaMatmulFaultTest, TransposedFlagWrong) {
  const auto fault = [](MatmulArgs& args) { args.transpose_b = true; };
  EXPECT_FALSE(IsRight({8, 8, 8}, fault));
  // Where sizes tell, the library refuses.
  EXPECT_THAT(
      [&] {
        IsRight({8, 5, 9}, fault);
      },
      ThrowsMessage<DeviceError>(HasSubstr("CUBLAS_STATUS_INVALID_VALUE")));
}

TEST_F(CudaMatmulFaultTest, LeadingDimensionWrong) {
  EXPECT_THAT(
      [&] {
        IsRight({8, 8, 8}, [](MatmulArgs& args) { args.ldb = 7; });
      },
      ThrowsMessage<DeviceError>(HasSubstr("CUBLAS_STATUS_INVALID_VALUE")));
  EXPECT_THAT(
      [&] {
        IsRight({8, 8, 8}, [](MatmulArgs& args) { args.lda = 9; });
      },
      ThrowsMessage<DeviceError>(HasSubstr("B is not in device memory")));
}

TEST_F(CudaMatmulFaultTest, OperandOnTheHost) {
  std::vector<float> host(64);
  EXPECT_THAT(
      [&] {
        IsRight({8, 8, 8}, [&](MatmulArgs& args) { args.a = host.data(); });
      },
      ThrowsMessage<DeviceError>(HasSubstr("not in device memory")));
}

TEST_F(CudaMatmulFaultTest, ScratchNotAligned) {
  MatmulArgs args = MatmulOptionsOf({DType::kF32, DType::kF32}, {8, 8, 8});
  args.lda = args.ldb = args.ldc = 8;
  void* memory = nullptr;
  CheckCuda(cudaMalloc(&memory, 16 << 20), "cudaMalloc");
  args.a = args.b = args.c = memory;
  args.scratch = static_cast<char*>(memory) + 16;
  args.scratch_bytes = 8 << 20;
  EXPECT_THAT([&] { kCudaMatmul.matmul(args, stream_); },
              ThrowsMessage<DeviceError>(HasSubstr("CUBLAS_STATUS_INVALID_VALUE")));
  (void)cudaFree(memory);
}

}  // namespace
}  // namespace pando
