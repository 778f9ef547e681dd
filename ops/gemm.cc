#include "ops/gemm.h"

#include "ops/op_support.h"

namespace pando {

void RunGemm(const Gemm& gemm, const Tensor& a, const Tensor& b, Tensor& c, const Tensor& bias) {
  Device& device = c.device();
  const MatmulKernels& kernels = matmul_kernels.For(device);
  MatmulArgs args{.a = a.data(),
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
  args.scratch_bytes = kernels.scratch_bytes(args);
  Tensor scratch;
  if (args.scratch_bytes > 0) {
    scratch = Scratch(args.scratch_bytes, device, "matmul scratch");
    args.scratch = scratch.mutable_data();
  }
  Run(device, kernels.matmul, args);
}

}  // namespace pando
