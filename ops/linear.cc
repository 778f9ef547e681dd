#include "ops/linear.h"

#include <utility>

#include "ops/gemm.h"
#include "ops/op_support.h"

namespace pando {
namespace {

/// Sizes of y [rows, out] = x [rows, in] W.
struct LinearSizes {
  int64_t rows, in, out;
};

LinearSizes CheckShapes(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        WeightLayout layout) {
  CheckFloating("linear", x, {&weight, &bias});
  Require(weight.rank() == 2 && x.rank() >= 1, "linear: weight ", Describe(weight), " for x ",
          Describe(x));
  const bool in_out = layout == WeightLayout::kInOut;
  const int64_t in = weight.dim(in_out ? 0 : 1);
  const int64_t out = weight.dim(in_out ? 1 : 0);
  Require(x.dim(-1) == in, "linear: x ", Describe(x), " for a weight ", Describe(weight), " of ",
          in, " inputs");
  Require(!bias.defined() || bias.shape() == Shape{out}, "linear: bias ", Describe(bias), " for ",
          out, " outputs");
  int64_t rows = 1;  // not numel / in: without inputs, y is the bias
  for (int64_t d = 0; d + 1 < x.rank(); ++d) rows *= x.dim(d);
  return {rows, in, out};
}

/// dW += x^T dy, or dy^T x where the weight lies [out, in].
void WeightGradient(const Tensor& x, const Tensor& dy, const LinearSizes& s, WeightLayout layout,
                    GradientTarget target) {
  const Gemm gemm{.transpose_a = true,
                  .accumulate = target.accumulate,
                  .m = layout == WeightLayout::kInOut ? s.in : s.out,
                  .n = layout == WeightLayout::kInOut ? s.out : s.in,
                  .k = s.rows};
  if (layout == WeightLayout::kInOut) {
    RunGemm(gemm, x, dy, target.tensor);
  } else {
    RunGemm(gemm, dy, x, target.tensor);
  }
}

void BiasGradient(BackwardPass& pass, const Tensor& dy, const LinearSizes& s) {
  Device& device = dy.device();
  const ColumnSumsKernels& kernels = column_sums_kernels.For(device);
  SumTarget sums(pass, 2, {s.out}, dy);
  Tensor scratch = Scratch(kernels.scratch(s.rows, s.out, dy.dtype()), device, "column sums");
  Run(device, kernels.run,
      ColumnSumsArgs{.x = dy.data(),
                     .dtype = dy.dtype(),
                     .rows = s.rows,
                     .cols = s.out,
                     .sums = sums.data(),
                     .accumulate = sums.accumulate(),
                     .scratch = scratch.mutable_data()});
  sums.Finish();
}

}  // namespace

Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const LinearSizes s = CheckShapes(x, weight, bias, layout);
  std::vector<int64_t> dims = x.shape().dims();
  dims.back() = s.out;
  Tensor y = Tensor::Empty(Shape(std::move(dims)), x.dtype(), x.device(), "linear");
  const bool out_in = layout == WeightLayout::kOutIn;
  RunGemm({.transpose_b = out_in, .m = s.rows, .n = s.out, .k = s.in}, x, weight, y, bias);
  if (!Recording({&x, &weight, &bias})) return y;
  const auto backward = [x = Saved(x), weight = Saved(weight), s, layout,
                         out_in](BackwardPass& pass) {
    const Tensor& dy = pass.Gradient();
    if (pass.Needs(2)) BiasGradient(pass, dy, s);
    if (pass.Needs(1)) WeightGradient(x.Get(), dy, s, layout, pass.Target(1));
    if (pass.Needs(0)) {
      GradientTarget dx = pass.Target(0);
      RunGemm(
          {.transpose_b = !out_in, .accumulate = dx.accumulate, .m = s.rows, .n = s.in, .k = s.out},
          dy, weight.Get(), dx.tensor);
    }
  };
  Record("linear", {&x, &weight, &bias}, {&y}, backward);
  return y;
}

}  // namespace pando
