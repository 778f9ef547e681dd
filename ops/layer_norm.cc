#include "ops/layer_norm.h"

#include "ops/op_support.h"

namespace pando {
namespace {

/// What backward needs besides the gradients; input 0 is x, 1 weight, 2 bias, 3 (if any) residual.
struct LayerNormSaved {
  Saved normalized_input;
  Saved weight;
  Saved mean;
  Saved rstd;
};

void CheckShapes(const char* op, const Tensor& x, const Tensor& residual, const Tensor& weight,
                 const Tensor& bias) {
  CheckFloating(op, x, {&residual, &weight, &bias});
  Require(x.rank() >= 1 && weight.shape() == Shape{x.dim(-1)}, op, ": weight ", Describe(weight),
          " for x ", Describe(x));
  Require(!bias.defined() || bias.shape() == weight.shape(), op, ": bias ", Describe(bias),
          " for x ", Describe(x));
  Require(!residual.defined() || residual.shape() == x.shape(), op, ": residual ",
          Describe(residual), " for x ", Describe(x));
}

/// dx, dweight and dbias in one kernel. `dsum` is the gradient that reaches the sum by the residual
/// path; undefined if none does. Returns dx, which is also the residual's gradient.
Tensor RunBackward(BackwardPass& pass, const LayerNormSaved& saved, const Tensor& dy,
                   const Tensor& dsum) {
  const Tensor x = saved.normalized_input.Get();
  Device& device = x.device();
  const LayerNormKernels& kernels = layer_norm_kernels.For(device);
  const int64_t cols = x.dim(-1);
  const int64_t rows = cols == 0 ? 0 : x.numel() / cols;
  const Tensor mean = saved.mean.Get(), rstd = saved.rstd.Get(), weight = saved.weight.Get();
  Tensor dx = Tensor::Empty(x.shape(), x.dtype(), device, "gradient of layer_norm");
  SumTarget dweight(pass, 1, weight.shape(), x), dbias(pass, 2, weight.shape(), x);
  // The kernel has one flag for both sums: where they differ (a shared weight), start from zero.
  if (dweight.accumulate() != dbias.accumulate()) {
    dweight.StartFromZero();
    dbias.StartFromZero();
  }
  Tensor scratch = Scratch(kernels.backward_scratch(rows, cols, x.dtype()), device, "layer_norm");
  Run(device, kernels.backward,
      LayerNormBackwardArgs{.x = x.data(),
                            .weight = weight.data(),
                            .dy = dy.data(),
                            .mean = mean.data(),
                            .rstd = rstd.data(),
                            .dsum = DataOrNull(dsum),
                            .dx = dx.mutable_data(),
                            .dweight = dweight.data(),
                            .dbias = dbias.data(),
                            .accumulate = dweight.accumulate() || dbias.accumulate(),
                            .dtype = x.dtype(),
                            .rows = rows,
                            .cols = cols,
                            .scratch = scratch.mutable_data()});
  dweight.Finish();
  dbias.Finish();
  return dx;
}

/// Runs the forward kernel; `sum` is written, and not null, if `residual` is defined.
LayerNormSaved RunForward(const Tensor& x, const Tensor& residual, const Tensor& weight,
                          const Tensor& bias, double eps, Tensor* sum, Tensor* y) {
  Device& device = x.device();
  const int64_t cols = x.dim(-1);
  const int64_t rows = cols == 0 ? 0 : x.numel() / cols;
  Tensor mean = Tensor::Empty({rows}, StatsDType(x), device, "layer_norm mean");
  Tensor rstd = Tensor::Empty({rows}, StatsDType(x), device, "layer_norm rstd");
  *y = Tensor::Empty(x.shape(), x.dtype(), device, "layer_norm");
  if (sum != nullptr) *sum = Tensor::Empty(x.shape(), x.dtype(), device, "residual sum");
  Run(device, layer_norm_kernels.For(device).forward,
      LayerNormForwardArgs{.x = x.data(),
                           .residual = DataOrNull(residual),
                           .sum = sum != nullptr ? sum->mutable_data() : nullptr,
                           .weight = weight.data(),
                           .bias = DataOrNull(bias),
                           .y = y->mutable_data(),
                           .mean = mean.mutable_data(),
                           .rstd = rstd.mutable_data(),
                           .dtype = x.dtype(),
                           .rows = rows,
                           .cols = cols,
                           .eps = eps});
  return {Saved(sum != nullptr ? *sum : x), Saved(weight), Saved(mean), Saved(rstd)};
}

}  // namespace

Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  CheckShapes("layer_norm", x, Tensor(), weight, bias);
  Tensor y;
  const LayerNormSaved saved = RunForward(x, Tensor(), weight, bias, eps, nullptr, &y);
  if (Recording({&x, &weight, &bias})) {
    Record("layer_norm", {&x, &weight, &bias}, {&y}, [saved](BackwardPass& pass) {
      pass.Add(0, RunBackward(pass, saved, pass.Gradient(), Tensor()));
    });
  }
  return y;
}

ResidualLayerNormResult ResidualLayerNorm(const Tensor& x, const Tensor& residual,
                                          const Tensor& weight, const Tensor& bias, double eps) {
  CheckShapes("residual_layer_norm", x, residual, weight, bias);
  Require(residual.defined(), "residual_layer_norm: the residual is undefined");
  ResidualLayerNormResult out;
  const LayerNormSaved saved =
      RunForward(x, residual, weight, bias, eps, &out.sum, &out.normalized);
  if (Recording({&x, &weight, &bias, &residual})) {
    Record("residual_layer_norm", {&x, &weight, &bias, &residual}, {&out.sum, &out.normalized},
           [saved](BackwardPass& pass) {
             const Tensor dsum = pass.Gradient(0);
             // Only the sum was used: nothing passes through the normalisation.
             const Tensor dx = pass.Gradient(1).defined()
                                   ? RunBackward(pass, saved, pass.Gradient(1), dsum)
                                   : dsum;
             pass.Add(0, dx);
             pass.Add(3, dx);
           });
  }
  return out;
}

}  // namespace pando
