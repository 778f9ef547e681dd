#include "ops/gelu.h"

#include "ops/op_support.h"

namespace pando {
namespace {

Tensor GeluWithBias(const Tensor& x, const Tensor& bias, bool reuse_x) {
  CheckFloating("gelu", x, {&bias});
  Require(!bias.defined() || (x.rank() >= 1 && bias.shape() == Shape{x.dim(-1)}), "gelu: bias ",
          Describe(bias), " for x ", Describe(x));
  Require(!reuse_x || x.parameter() == nullptr, "gelu: x is a parameter: not to be overwritten");
  Device& device = x.device();
  const int64_t cols = x.rank() == 0 ? 1 : x.dim(-1);
  const int64_t rows = cols == 0 ? 0 : x.numel() / cols;
  const bool record = Recording({&x, &bias});
  Tensor pre = x;
  if (bias.defined() && record && !reuse_x) {
    pre = Tensor::Empty(x.shape(), x.dtype(), device, "gelu input");
  }
  Tensor y = Tensor::Empty(x.shape(), x.dtype(), device, "gelu");
  Run(device, gelu_kernels.For(device).forward,
      GeluForwardArgs{.x = x.data(),
                      .bias = DataOrNull(bias),
                      .pre = bias.defined() && record ? pre.mutable_data() : nullptr,
                      .y = y.mutable_data(),
                      .dtype = x.dtype(),
                      .rows = rows,
                      .cols = cols});
  if (!record) return y;
  Record("gelu", {&x, &bias}, {&y}, [pre = Saved(pre), rows, cols](BackwardPass& pass) {
    const Tensor saved = pre.Get();
    Device& device = saved.device();
    const GeluKernels& kernels = gelu_kernels.For(device);
    const Tensor& dy = pass.Gradient();
    Tensor dx = Tensor::Empty(saved.shape(), saved.dtype(), device, "gradient of gelu");
    SumTarget dbias(pass, 1, {cols}, saved);
    Tensor scratch = Scratch(
        dbias.needed() ? kernels.backward_scratch(rows, cols, saved.dtype()) : 0, device, "gelu");
    Run(device, kernels.backward,
        GeluBackwardArgs{.pre = saved.data(),
                         .dy = dy.data(),
                         .dx = dx.mutable_data(),
                         .dbias = dbias.data(),
                         .accumulate = dbias.accumulate(),
                         .dtype = saved.dtype(),
                         .rows = rows,
                         .cols = cols,
                         .scratch = scratch.mutable_data()});
    dbias.Finish();
    pass.Add(0, std::move(dx));
  });
  return y;
}

}  // namespace

Tensor Gelu(const Tensor& x) { return GeluWithBias(x, Tensor(), false); }

Tensor BiasGelu(const Tensor& x, const Tensor& bias, bool reuse_x) {
  return GeluWithBias(x, bias, reuse_x);
}

}  // namespace pando
