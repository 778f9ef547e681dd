#include "ops/gemm.h"

#include "ops/op_support.h"

namespace pando {
namespace {

MatmulArgs ArgsOf(const Gemm& gemm, const Tensor& a, const Tensor& b, Tensor& c,
                  const Tensor& bias) {
  return {.a = a.data(),
          .b = b.data(),
          .c = c.mutable_data(),
          .bias = DataOrNull(bias),
          .input_dtype = a.dtype(),
          .output_dtype = c.dtype(),
          .transpose_a = gemm.transpose_a,
          .transpose_b = gemm.transpose_b,
          .accumulate = gemm.accumulate,
          .batch = gemm.batch,
          .m = gemm.m,
          .n = gemm.n,
          .k = gemm.k,
          .lda = gemm.transpose_a ? gemm.m : gemm.k,
          .ldb = gemm.transpose_b ? gemm.k : gemm.n,
          .ldc = gemm.n,
          .stride_a = gemm.stride_a,
          .stride_b = gemm.stride_b,
          .stride_c = gemm.stride_c,
          .scratch = nullptr,
          .scratch_bytes = 0};
}

void RunWithScratch(MatmulArgs args, Device& device) {
  const MatmulKernels& kernels = matmul_kernels.For(device);
  args.scratch_bytes = kernels.scratch_bytes(args);
  Tensor scratch;
  if (args.scratch_bytes > 0) {
    scratch = Scratch(args.scratch_bytes, device, "matmul scratch");
    args.scratch = scratch.mutable_data();
  }
  Run(device, kernels.matmul, args);
}

}  // namespace

void RunGemm(const Gemm& gemm, const Tensor& a, const Tensor& b, Tensor& c, const Tensor& bias) {
  RunWithScratch(ArgsOf(gemm, a, b, c, bias), c.device());
}

bool FusesProducts(const Device& device) { return matmul_kernels.For(device).fuses != nullptr; }

bool RunFusedGemm(const Gemm& gemm, Fusion fusion, const Tensor& a, const Tensor& b, Tensor& c,
                  const Tensor& bias) {
  if (!FusesProducts(c.device())) return false;
  MatmulArgs args = ArgsOf(gemm, a, b, c, bias);
  args.fusion = fusion.kind;
  // Only kGelu writes `aux`; else it must stay the version that was saved.
  if (fusion.aux.defined()) {
    args.aux = fusion.kind == MatmulFusion::kGelu ? fusion.aux.mutable_data()
                                                  : const_cast<void*>(fusion.aux.data());
  }
  if (fusion.sums.defined()) args.sums = fusion.sums.mutable_data();
  if (!matmul_kernels.For(c.device()).fuses(args)) return false;
  RunWithScratch(args, c.device());
  return true;
}

}  // namespace pando
