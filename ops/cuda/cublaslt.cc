#include "ops/cuda/cublaslt.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "engine/bounded_cache.h"
#include "engine/cuda/check.h"
#include "engine/error.h"

namespace pando {
namespace {

// A GPT has some forty products per sequence length; what a longer run gathers beyond this was used
// long ago.
constexpr int64_t kPlans = 512;
constexpr int kMaxDevices = 64;

cudaDataType_t CudaType(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

template <typename T>
void Set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  CheckCublas(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)),
              "describing a product");
}

template <typename T>
void Set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  CheckCublas(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)),
              "describing a matrix");
}

template <typename T>
void Set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  CheckCublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
              "stating preferences");
}

/// A pointer of exactly this alignment, at most 256, for the heuristic, which looks at nothing else
/// of it.
void* PointerAligned(uint32_t alignment) {
  alignas(512) static std::array<char, 512> anywhere;
  return anywhere.data() + alignment;
}

struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t p) const { cublasLtMatmulPreferenceDestroy(p); }
};

}  // namespace

void CheckCublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(absl::StrCat("cublasLt: ", what, ": ", cublasLtGetStatusName(status)));
}

cublasLtHandle_t CublasLtHandle(int device) {
  // Never destroyed: at the end of the process CUDA may be gone first.
  static std::array<std::atomic<cublasLtHandle_t>, kMaxDevices> handles;
  static std::mutex making;
  std::atomic<cublasLtHandle_t>& handle = handles.at(static_cast<size_t>(device));
  if (handle.load() == nullptr) {
    const std::lock_guard<std::mutex> lock(making);
    if (handle.load() == nullptr) {
      cublasLtHandle_t made = nullptr;
      CheckCublas(cublasLtCreate(&made), "starting the library");
      handle.store(made);
    }
  }
  return handle.load();
}

int ComputeCapabilityMajor(int device) {
  int major = 0;
  CheckCuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
            "asking for the compute capability");
  return major;
}

int64_t CublasLtWorkspaceBytes() {
  int devices = 0, newest = 0;
  CheckCuda(cudaGetDeviceCount(&devices), "counting devices");
  for (int d = 0; d < devices; ++d) newest = std::max(newest, ComputeCapabilityMajor(d));
  return int64_t{newest >= 9 ? 32 : 8} << 20;
}

uint32_t AlignmentOf(const void* p) {
  if (p == nullptr) return 0;
  return uint32_t{1} << std::min(std::countr_zero(reinterpret_cast<uintptr_t>(p)), 8);
}

CublasLtPlan::Layout CublasLtPlan::NewLayout(DType dtype, int64_t rows, int64_t cols, int64_t ld,
                                             int64_t batch, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  CheckCublas(cublasLtMatrixLayoutCreate(&made, CudaType(dtype), static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(cols), ld),
              "making a layout");
  Layout layout(made);
  if (batch > 1) {
    Set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
    Set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  return layout;
}

CublasLtPlan::CublasLtPlan(const CublasLtProblem& p)
    : handle_(CublasLtHandle(p.device)),
      scale_type_(p.output == DType::kF64 ? DType::kF64 : DType::kF32),
      a_(NewLayout(p.input, p.transpose_a ? p.inner : p.rows, p.transpose_a ? p.rows : p.inner,
                   p.lda, p.batch, p.stride_a)),
      b_(NewLayout(p.input, p.transpose_b ? p.cols : p.inner, p.transpose_b ? p.inner : p.cols,
                   p.ldb, p.batch, p.stride_b)),
      d_(NewLayout(p.output, p.rows, p.cols, p.ldd, p.batch, p.stride_d)),
      has_bias_(p.align_bias > 0),
      has_aux_(p.align_aux > 0) {
  MakeDescriptor(p);
  ChooseAlgorithm(p);
}

void CublasLtPlan::MakeDescriptor(const CublasLtProblem& p) {
  cublasLtMatmulDesc_t made = nullptr;
  CheckCublas(cublasLtMatmulDescCreate(&made, p.compute, CudaType(scale_type_)),
              "making a descriptor");
  desc_.reset(made);
  Set(made, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(made, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
  if (has_bias_) Set(made, CUBLASLT_MATMUL_DESC_BIAS_POINTER, PointerAligned(p.align_bias));
  if (has_aux_) {
    Set(made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, PointerAligned(p.align_aux));
    Set(made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.ld_aux);
  }
}

void CublasLtPlan::ChooseAlgorithm(const CublasLtProblem& p) {
  cublasLtMatmulPreference_t made = nullptr;
  CheckCublas(cublasLtMatmulPreferenceCreate(&made), "stating preferences");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, DestroyPreference> preference(made);
  Set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(p.workspace_bytes));
  // Parts of a split sum stay in the compute type, so that the result is rounded once.
  Set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  Set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.align_a);
  Set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.align_b);
  Set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.align_d);
  Set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.align_d);
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  status_ = cublasLtMatmulAlgoGetHeuristic(handle_, desc_.get(), a_.get(), b_.get(), d_.get(),
                                           d_.get(), made, 1, &result, &found);
  // These two say that there is no algorithm, which callers may ask about; all else is an error.
  if (status_ != CUBLAS_STATUS_NOT_SUPPORTED && status_ != CUBLAS_STATUS_INVALID_VALUE) {
    CheckCublas(status_, "choosing an algorithm");
    status_ = found > 0 ? result.state : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  algo_ = result.algo;
}

void CublasLtPlan::Run(const CublasLtOperands& o, cudaStream_t stream) const {
  CheckCublas(status_, "choosing an algorithm");
  const double one_f64 = 1, zero_f64 = 0;
  const float one_f32 = 1, zero_f32 = 0;
  const bool f64 = scale_type_ == DType::kF64;
  const void* const one = f64 ? static_cast<const void*>(&one_f64) : &one_f32;
  const void* const zero = f64 ? static_cast<const void*>(&zero_f64) : &zero_f32;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (has_bias_) Set(desc_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
  if (has_aux_) Set(desc_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.aux);
  CheckCublas(cublasLtMatmul(handle_, desc_.get(), one, o.a, a_.get(), o.b, b_.get(),
                             o.accumulate ? one : zero, o.d, d_.get(), o.d, d_.get(), &algo_,
                             o.workspace, static_cast<size_t>(o.workspace_bytes), stream),
              "multiplying");
}

std::shared_ptr<const CublasLtPlan> PlanFor(const CublasLtProblem& problem) {
  static auto& cache = *new BoundedCache<CublasLtProblem, std::unique_ptr<CublasLtPlan>>(kPlans);
  const auto held = cache.Get(
      problem, [](const CublasLtProblem& p) { return std::make_unique<CublasLtPlan>(p); });
  return {held, held->get()};
}

}  // namespace pando
