#include "ops/linear_parts.h"

#include <utility>

#include "ops/op_support.h"

namespace pando {
namespace {

/// dW = x^T dy (+ dW), or dy^T x where the weight lies [out, in].
Gemm WeightProduct(const LinearSizes& s, bool accumulate) {
  const bool in_out = s.layout == WeightLayout::kInOut;
  return {.transpose_a = true,
          .accumulate = accumulate,
          .m = in_out ? s.in : s.out,
          .n = in_out ? s.out : s.in,
          .k = s.rows};
}

void AddColumnSums(const Tensor& dy, const LinearSizes& s, SumTarget& sums) {
  Device& device = dy.device();
  const ColumnSumsKernels& kernels = column_sums_kernels.For(device);
  Tensor scratch = Scratch(kernels.scratch(s.rows, s.out, dy.dtype()), device, "column sums");
  Run(device, kernels.run,
      ColumnSumsArgs{.x = dy.data(),
                     .dtype = dy.dtype(),
                     .rows = s.rows,
                     .cols = s.out,
                     .sums = sums.data(),
                     .accumulate = sums.accumulate(),
                     .scratch = scratch.mutable_data()});
}

/// Weight and bias in one product; false, and nothing done, where the device can't.
bool AddBothGradients(const Tensor& x, const Tensor& dy, const LinearSizes& s, GradientTarget& dw,
                      SumTarget& sums) {
  if (dw.tensor.dtype() != DType::kF32 || sums.tensor().dtype() != DType::kF32) return false;
  // The product writes its sums: what is to be added goes to a place of its own.
  Tensor fresh = sums.accumulate()
                     ? Tensor::Empty({s.out}, DType::kF32, dy.device(), "gradient sums")
                     : sums.tensor();
  const Gemm gemm = WeightProduct(s, dw.accumulate);
  const bool fused =
      s.layout == WeightLayout::kInOut
          ? RunFusedGemm(gemm, {.kind = MatmulFusion::kSumsOfB, .sums = fresh}, x, dy, dw.tensor)
          : RunFusedGemm(gemm, {.kind = MatmulFusion::kSumsOfA, .sums = fresh}, dy, x, dw.tensor);
  if (fused && sums.accumulate()) sums.tensor().AddFrom(fresh);
  return fused;
}

}  // namespace

LinearSizes CheckLinear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        WeightLayout layout) {
  CheckFloating(op, x, {&weight, &bias});
  Require(weight.rank() == 2 && x.rank() >= 1, op, ": weight ", Describe(weight), " for x ",
          Describe(x));
  const bool in_out = layout == WeightLayout::kInOut;
  const int64_t in = weight.dim(in_out ? 0 : 1);
  const int64_t out = weight.dim(in_out ? 1 : 0);
  Require(x.dim(-1) == in, op, ": x ", Describe(x), " for a weight ", Describe(weight), " of ", in,
          " inputs");
  Require(!bias.defined() || bias.shape() == Shape{out}, op, ": bias ", Describe(bias), " for ",
          out, " outputs");
  int64_t rows = 1;  // not numel / in: without inputs, y is the bias
  for (int64_t d = 0; d + 1 < x.rank(); ++d) rows *= x.dim(d);
  return {rows, in, out, layout};
}

Tensor WithLastSize(const Tensor& x, int64_t last, const char* name) {
  std::vector<int64_t> dims = x.shape().dims();
  dims.back() = last;
  return Tensor::Empty(Shape(std::move(dims)), x.dtype(), x.device(), name);
}

void AddParameterGradients(BackwardPass& pass, int weight, int bias, const Saved& x,
                           const Tensor& dy, const LinearSizes& sizes) {
  SumTarget sums(pass, bias, {sizes.out}, dy);
  if (!pass.Needs(weight)) {
    if (sums.needed()) AddColumnSums(dy, sizes, sums);
  } else {
    const Tensor saved = x.Get();
    GradientTarget dw = pass.Target(weight);
    const bool fuse = sums.needed() && FusesProducts(dy.device());
    if (!fuse || !AddBothGradients(saved, dy, sizes, dw, sums)) {
      if (sums.needed()) AddColumnSums(dy, sizes, sums);
      const bool in_out = sizes.layout == WeightLayout::kInOut;
      RunGemm(WeightProduct(sizes, dw.accumulate), in_out ? saved : dy, in_out ? dy : saved,
              dw.tensor);
    }
  }
  sums.Finish();
}

void AddInputGradient(BackwardPass& pass, int input, const Tensor& dy, const Saved& weight,
                      const LinearSizes& sizes) {
  if (!pass.Needs(input)) return;
  GradientTarget dx = pass.Target(input);
  Gemm gemm = sizes.Backward();
  gemm.accumulate = dx.accumulate;
  RunGemm(gemm, dy, weight.Get(), dx.tensor);
}

void GeluGradient(const Tensor& pre, const Tensor& dy, Tensor& dx, int64_t rows, int64_t cols) {
  Run(pre.device(), gelu_kernels.For(pre.device()).backward,
      GeluBackwardArgs{.pre = pre.data(),
                       .dy = dy.data(),
                       .dx = dx.mutable_data(),
                       .dbias = nullptr,
                       .accumulate = false,
                       .dtype = pre.dtype(),
                       .rows = rows,
                       .cols = cols,
                       .scratch = nullptr});
}

}  // namespace pando
