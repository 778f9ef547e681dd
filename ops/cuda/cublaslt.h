#pragma once

// cuBLASLt behind one cache: for each product a descriptor, layouts and the algorithm that the
// library's heuristic names, made once and never timed, so that every run computes the same.

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/types.h"

namespace pando {

/// Throws DeviceError with `what` was tried and cuBLAS's name of the status, unless it is success.
void CheckCublas(cublasStatus_t status, const char* what);

/// The process's handle of the current CUDA device `device`, made on first use. Throws DeviceError.
cublasLtHandle_t CublasLtHandle(int device);

/// The first number of a device's compute capability. Throws DeviceError.
int ComputeCapabilityMajor(int device);

/// Memory that algorithms may use: what NVIDIA recommends (cuBLAS documentation,
/// cublasSetWorkspace), 32 MiB for compute capability 9.0 and newer, else 4 MiB, of which we make
/// 8. The same for all devices of this process: what the newest of them wants.
int64_t CublasLtWorkspaceBytes();

/// All that descriptors and algorithm of one product depend on, in cuBLASLt's terms: D = op(A)
/// op(B) in column-major order, D of `rows` x `cols`.
struct CublasLtProblem {
  int device = 0;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  DType input = DType::kF32;
  DType output = DType::kF32;
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t rows = 0, cols = 0, inner = 0, batch = 1;
  int64_t lda = 0, ldb = 0, ldd = 0, ld_aux = 0;
  int64_t stride_a = 0, stride_b = 0, stride_d = 0;
  int64_t workspace_bytes = 0;
  /// Of the pointers, in bytes; 0 where there is none.
  uint32_t align_a = 0, align_b = 0, align_d = 0, align_bias = 0, align_aux = 0;

  bool operator==(const CublasLtProblem&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const CublasLtProblem& p) {
    return H::combine(
        std::move(h), p.device, static_cast<int>(p.compute), static_cast<int>(p.epilogue),
        static_cast<int>(p.input), static_cast<int>(p.output), p.transpose_a, p.transpose_b, p.rows,
        p.cols, p.inner, p.batch, p.lda, p.ldb, p.ldd, p.ld_aux, p.stride_a, p.stride_b, p.stride_d,
        p.workspace_bytes, p.align_a, p.align_b, p.align_d, p.align_bias, p.align_aux);
  }
};

/// The alignment of `p` in bytes as far as algorithms care: at most 256, 0 for null.
uint32_t AlignmentOf(const void* p);

/// Operands of one call. C = D: beta adds to D in place.
struct CublasLtOperands {
  const void* a;
  const void* b;
  void* d;
  void* bias;  ///< or the vector of sums that the epilogue writes
  void* aux;
  bool accumulate;  ///< beta = 1, else 0
  void* workspace;  ///< aligned to 256 bytes
  int64_t workspace_bytes;
};

/// Descriptors and algorithm of one problem.
class CublasLtPlan {
 public:
  /// Asks the heuristic. Throws DeviceError if that fails for another reason than there being no
  /// algorithm for the problem.
  explicit CublasLtPlan(const CublasLtProblem& problem);

  /// Whether there is an algorithm.
  bool supported() const { return status_ == CUBLAS_STATUS_SUCCESS; }
  /// Queues the product on the stream. Throws DeviceError.
  void Run(const CublasLtOperands& operands, cudaStream_t stream) const;

 private:
  struct DestroyDesc {
    void operator()(cublasLtMatmulDesc_t d) const { cublasLtMatmulDescDestroy(d); }
  };
  struct DestroyLayout {
    void operator()(cublasLtMatrixLayout_t l) const { cublasLtMatrixLayoutDestroy(l); }
  };
  using Desc = std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyDesc>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyLayout>;

  static Layout NewLayout(DType dtype, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                          int64_t stride);
  void MakeDescriptor(const CublasLtProblem& problem);
  void ChooseAlgorithm(const CublasLtProblem& problem);

  cublasLtHandle_t handle_;
  DType scale_type_;
  Desc desc_;
  Layout a_, b_, d_;
  cublasStatus_t status_ = CUBLAS_STATUS_NOT_SUPPORTED;
  cublasLtMatmulAlgo_t algo_ = {};
  bool has_bias_, has_aux_;
  /// The descriptor holds pointers of the call: one call at a time.
  mutable std::mutex mutex_;
};

/// The plan of `problem`, from the cache or made now.
std::shared_ptr<const CublasLtPlan> PlanFor(const CublasLtProblem& problem);

}  // namespace pando
