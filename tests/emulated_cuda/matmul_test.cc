// Matrix products of ops/cuda on the stand-in for cuBLASLt: what depends on the kind of GPU, what
// is made when, and faults that must be caught. Results are tests/ops/matmul_device_test.cc's.
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

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A copy of an array on the device, ending, to within 16 bytes, where memory ends.
class OnDevice {
 public:
  explicit OnDevice(Array& array) : array_(array) {
    CheckCuda(cudaMalloc(&data_, array.bytes()), "cudaMalloc");
    CheckCuda(cudaMemcpy(data_, array.data(), array.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~OnDevice() { (void)cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  void* data() const { return data_; }
  void CopyBack() {
    CheckCuda(cudaMemcpy(array_.data(), data_, array_.bytes(), cudaMemcpyDeviceToHost),
              "cudaMemcpy");
  }

 private:
  Array& array_;
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

  /// Carries out the problem. `fault` may spoil the arguments.
  template <typename Fault>
  void Multiply(MatmulProblem& problem, const Fault& fault) {
    OnDevice a(problem.a), b(problem.b), c(problem.c);
    MatmulArgs args = problem.args;
    args.a = a.data();
    args.b = b.data();
    args.c = c.data();
    fault(args);
    Launch(args);
    c.CopyBack();
  }
  void Multiply(MatmulProblem& problem) {
    Multiply(problem, [](MatmulArgs&) {});
  }

  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
};

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

TEST_F(CudaMatmulTest, FusesOnlyWhatTheLibraryHasAndIsWorthIt) {
  const auto offers = [this](DTypes dtypes, MatmulShape shape, MatmulFusion fusion, int64_t batch) {
    MatmulArgs args = MatmulOptionsOf(dtypes, shape, batch);
    args.lda = shape.k;
    args.ldb = args.ldc = shape.n;
    args.stride_c = shape.m * shape.n;
    args.a = args.b = args.c = scratch_;
    args.fusion = fusion;
    (fusion == MatmulFusion::kSumsOfA ? args.sums : args.aux) = scratch_;
    return kCudaMatmul.fuses(args);
  };
  const DTypes bf16 = {DType::kBF16, DType::kBF16}, f32 = {DType::kF32, DType::kF32};
  Use(90);
  EXPECT_TRUE(offers(bf16, {4, 8, 8}, MatmulFusion::kGelu, 1));
  EXPECT_FALSE(offers(bf16, {4, 9, 8}, MatmulFusion::kGelu, 1)) << "leading dimension of aux";
  EXPECT_FALSE(offers(bf16, {4, 8, 0}, MatmulFusion::kGelu, 1)) << "no product";
  EXPECT_FALSE(offers(bf16, {4, 8, 8}, MatmulFusion::kGelu, 2)) << "batch";
  EXPECT_FALSE(offers(f32, {4, 8, 8}, MatmulFusion::kGelu, 1)) << "accuracy";
  EXPECT_TRUE(offers(f32, {4, 8, 8}, MatmulFusion::kSumsOfA, 1));
  EXPECT_FALSE(offers(bf16, {4, 8, 8}, MatmulFusion::kSumsOfA, 1)) << "sums in bf16";
  Use(89);
  EXPECT_FALSE(offers(bf16, {4, 8, 8}, MatmulFusion::kGelu, 1)) << "before Hopper";
  EXPECT_TRUE(offers(f32, {4, 8, 8}, MatmulFusion::kSumsOfA, 1));
}

// --- Faults ------------------------------------------------------------------------------------

class CudaMatmulFaultTest : public CudaMatmulTest {
 protected:
  /// Runs a problem with a fault: whether the result is right. Throws if the fault is refused.
  template <typename Fault>
  bool IsRight(MatmulShape shape, const Fault& fault) {
    MatmulProblem problem(MatmulOptionsOf({DType::kF32, DType::kF32}, shape), 0);
    Multiply(problem, fault);
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
