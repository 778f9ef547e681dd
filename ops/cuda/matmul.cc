// Matrix products by cuBLASLt. Its matrices are column-major, so a row-major C = A B is asked for
// as C^T = B^T A^T: with operands exchanged, what lies in memory is the same.

#include <cuda_runtime_api.h>

#include <limits>

#include "engine/cuda/check.h"
#include "engine/error.h"
#include "ops/cuda/cublaslt.h"
#include "ops/cuda/matmul_bias.h"
#include "ops/cuda/tables.h"
#include "ops/kernels/tf32.h"

namespace pando {
namespace {

/// The device that kernels go to, and that operands are taken to lie on: of a process's devices,
/// one runs its products.
int CurrentDevice() {
  int device = 0;
  CheckCuda(cudaGetDevice(&device), "asking for the device");
  return device;
}

bool IsNarrow(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

void CheckDTypes(const MatmulArgs& args) {
  const bool same = args.input_dtype == args.output_dtype && IsFloating(args.input_dtype);
  Require(same || (IsNarrow(args.input_dtype) && args.output_dtype == DType::kF32),
          "matmul: ", Name(args.input_dtype), " to ", Name(args.output_dtype), " is not supported");
}

cublasComputeType_t ComputeTypeOf(const MatmulArgs& args) {
  if (args.output_dtype == DType::kF64) return CUBLAS_COMPUTE_64F;
  const bool tf32 = args.input_dtype == DType::kF32 && allow_tf32.load(std::memory_order_relaxed) &&
                    ComputeCapabilityMajor(CurrentDevice()) >= 8;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// Whether the bias has the dtype that epilogues want: the output's (cuBLAS documentation,
/// cublasLtMatmul, table of supported types).
bool BiasInEpilogue(const MatmulArgs& args) {
  return args.bias != nullptr && args.input_dtype == args.output_dtype;
}

cublasLtEpilogue_t EpilogueOf(const MatmulArgs& args) {
  const bool bias = BiasInEpilogue(args);
  switch (args.fusion) {
    case MatmulFusion::kGelu:
      if (args.aux == nullptr) return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
      return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case MatmulFusion::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case MatmulFusion::kSumsOfA:
      return CUBLASLT_EPILOGUE_BGRADB;  // operands are exchanged
    case MatmulFusion::kSumsOfB:
      return CUBLASLT_EPILOGUE_BGRADA;
    case MatmulFusion::kNone:
      break;
  }
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// The vector that the epilogue reads or writes.
void* BiasOf(const MatmulArgs& args) {
  if (args.sums != nullptr) return args.sums;
  return BiasInEpilogue(args) ? const_cast<void*>(args.bias) : nullptr;
}

CublasLtProblem ProblemOf(const MatmulArgs& args) {
  return {.device = CurrentDevice(),
          .compute = ComputeTypeOf(args),
          .epilogue = EpilogueOf(args),
          .input = args.input_dtype,
          .output = args.output_dtype,
          .transpose_a = args.transpose_b,
          .transpose_b = args.transpose_a,
          .rows = args.n,
          .cols = args.m,
          .inner = args.k,
          .batch = args.batch,
          .lda = args.ldb,
          .ldb = args.lda,
          .ldd = args.ldc,
          .ld_aux = args.aux == nullptr ? 0 : args.n,
          .stride_a = args.stride_b,
          .stride_b = args.stride_a,
          .stride_d = args.stride_c,
          .workspace_bytes = CublasLtWorkspaceBytes(),
          .align_a = AlignmentOf(args.b),
          .align_b = AlignmentOf(args.a),
          .align_d = AlignmentOf(args.c),
          .align_bias = AlignmentOf(BiasOf(args)),
          .align_aux = AlignmentOf(args.aux)};
}

bool IsEmpty(const MatmulArgs& args) { return args.batch == 0 || args.m == 0 || args.n == 0; }

int64_t ScratchBytes(const MatmulArgs& args) {
  return IsEmpty(args) || args.k == 0 ? 0 : CublasLtWorkspaceBytes();
}

/// What the documentation allows, and what is worth it; the heuristic has the last word.
bool MayFuse(const MatmulArgs& args) {
  if (IsEmpty(args) || args.k == 0 || args.batch != 1) return false;
  if (args.fusion == MatmulFusion::kSumsOfA || args.fusion == MatmulFusion::kSumsOfB) {
    // Sums have the output's dtype, and a bias's gradient is to be as exact as f32.
    return args.output_dtype == DType::kF32 && args.bias == nullptr;
  }
  // The library promises no accuracy for its GELU, so f32 keeps to ours. Before Hopper it has fast
  // kernels for few of these (measured by others: github.com/karpathy/llm.c/pull/338). The leading
  // dimension of `aux` must be a multiple of 8 (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
  return args.input_dtype == args.output_dtype && IsNarrow(args.output_dtype) && !args.accumulate &&
         args.n % 8 == 0 && ComputeCapabilityMajor(CurrentDevice()) >= 9;
}

bool Fuses(const MatmulArgs& args) {
  CheckDTypes(args);
  return MayFuse(args) && PlanFor(ProblemOf(args))->supported();
}

void Matmul(const MatmulArgs& args, void* stream) {
  CheckDTypes(args);
  if (IsEmpty(args)) return;
  if (args.k == 0) {
    Require(args.fusion == MatmulFusion::kNone, "matmul: nothing to fuse with an empty product");
    if (!args.accumulate || args.bias != nullptr) CudaAddBias(args, args.accumulate, stream);
    return;
  }
  Require(args.batch <= std::numeric_limits<int32_t>::max(), "matmul: a batch of ", args.batch,
          " is too large for cuBLASLt");
  const int64_t scratch_bytes = ScratchBytes(args);
  Require(args.scratch_bytes >= scratch_bytes, "matmul: ", args.scratch_bytes,
          " bytes of scratch where ", scratch_bytes, " are needed");
  PlanFor(ProblemOf(args))
      ->Run({.a = args.b,
             .b = args.a,
             .d = args.c,
             .bias = BiasOf(args),
             .aux = args.aux,
             .accumulate = args.accumulate,
             .workspace = args.scratch,
             .workspace_bytes = args.scratch_bytes},
            static_cast<cudaStream_t>(stream));
  if (args.bias != nullptr && !BiasInEpilogue(args)) CudaAddBias(args, true, stream);
}

}  // namespace

const MatmulKernels kCudaMatmul = {.matmul = Matmul, .scratch_bytes = ScratchBytes, .fuses = Fuses};

}  // namespace pando
