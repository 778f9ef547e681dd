#include "ops/reduce.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/op_support.h"
#include "ops/strided.h"

namespace pando {
namespace {

/// Which dimensions go, and the shapes without them and with size 1 in their place.
struct Reduction {
  ReduceIndex<1> index;
  Shape kept;
  Shape with_ones;
  int64_t outputs, terms;
};

Reduction ReductionOf(const char* op, const Tensor& x, std::vector<int64_t> dims) {
  CheckFloating(op, x);
  if (dims.empty()) {
    dims.resize(static_cast<size_t>(x.rank()));
    std::iota(dims.begin(), dims.end(), 0);
  }
  for (int64_t& d : dims) d = d < 0 ? d + x.rank() : d;
  Reduction r{Naming(op, [&] { return ReduceOver(x.shape().dims(), dims); }), {}, {}, 0, 0};
  std::vector<int64_t> kept, ones = x.shape().dims();
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
      kept.push_back(x.dim(d));
    } else {
      ones[d] = 1;
    }
  }
  r.kept = Shape(std::move(kept));
  r.with_ones = Shape(std::move(ones));
  r.outputs = Count(r.index.kept);
  r.terms = Count(r.index.reduced);
  return r;
}

Tensor SumOrMean(const char* op, const Tensor& x, std::vector<int64_t> dims, bool keep_dims,
                 bool mean) {
  const Reduction r = ReductionOf(op, x, std::move(dims));
  Device& device = x.device();
  const double divisor = mean ? static_cast<double>(r.terms) : 1.0;
  Tensor y = Tensor::Empty(keep_dims ? r.with_ones : r.kept, x.dtype(), device, op);
  Tensor scratch = Scratch(SumScratch(r.outputs, r.terms) * SizeOf(DType::kF64), device, op);
  Run(device, reduce_kernels.For(device).sum,
      SumArgs{.dtype = x.dtype(),
              .x = x.data(),
              .index = r.index,
              .output = {.y = y.mutable_data(),
                         .dtype = x.dtype(),
                         .accumulate = false,
                         .divisor = divisor,
                         .scratch = static_cast<double*>(scratch.mutable_data())}});
  if (!Recording({&x})) return y;
  const auto backward = [shape = x.shape(), ones = r.with_ones, divisor](BackwardPass& pass) {
    // Every term's gradient is the sum's: a copy with stride 0, then the division of a mean.
    const Tensor& dy = pass.Gradient();
    Device& device = dy.device();
    Tensor dx = Tensor::Empty(shape, dy.dtype(), device, "gradient of sum");
    const std::array<Dims, 2> operands{shape.dims(), ones.dims()};
    Run(device, copy_kernels.For(device).copy,
        CopyArgs{.dtype = dy.dtype(),
                 .y = dx.mutable_data(),
                 .x = dy.data(),
                 .index = Collapsed(BroadcastIndex<2>(shape.dims(), operands))});
    if (divisor != 1) {
      Run(device, device.vector_kernels().scale,
          ScaleArgs{.x = dx.mutable_data(),
                    .dtype = dx.dtype(),
                    .n = dx.numel(),
                    .a = 1 / divisor,
                    .factor = nullptr});
    }
    pass.Add(0, std::move(dx));
  };
  Record(op, {&x}, {&y}, backward);
  return y;
}

}  // namespace

Tensor Sum(const Tensor& x, std::vector<int64_t> dims, bool keep_dims) {
  return SumOrMean("sum", x, std::move(dims), keep_dims, false);
}

Tensor Mean(const Tensor& x, std::vector<int64_t> dims, bool keep_dims) {
  return SumOrMean("mean", x, std::move(dims), keep_dims, true);
}

Tensor Max(const Tensor& x, std::vector<int64_t> dims, bool keep_dims) {
  const Reduction r = ReductionOf("max", x, std::move(dims));
  Device& device = x.device();
  const bool record = Recording({&x});
  Tensor y = Tensor::Empty(keep_dims ? r.with_ones : r.kept, x.dtype(), device, "max");
  Tensor arg;
  if (record) arg = Tensor::Empty({r.outputs}, DType::kI64, device, "position of max");
  Run(device, reduce_kernels.For(device).max,
      MaxArgs{.dtype = x.dtype(),
              .x = x.data(),
              .y = y.mutable_data(),
              .arg = record ? arg.mutable_data<int64_t>() : nullptr,
              .index = r.index});
  if (!record) return y;
  const auto backward = [shape = x.shape(), index = r.index, arg = Saved(arg)](BackwardPass& pass) {
    const Tensor& dy = pass.Gradient();
    const Tensor where = arg.Get();
    GradientTarget dx = pass.Target(0);
    if (!dx.accumulate) dx.tensor.SetZero();
    if (shape.numel() == 0) return;
    Run(dy.device(), reduce_kernels.For(dy.device()).max_backward,
        MaxBackwardArgs{.dtype = dy.dtype(),
                        .dy = dy.data(),
                        .arg = where.data<int64_t>(),
                        .dx = dx.tensor.mutable_data(),
                        .dx_dtype = dx.tensor.dtype(),
                        .index = index});
  };
  Record("max", {&x}, {&y}, backward);
  return y;
}

Tensor Softmax(const Tensor& x) {
  CheckFloating("softmax", x);
  Require(x.rank() >= 1, "softmax: ", Describe(x), " has no dimension to run over");
  Device& device = x.device();
  const int64_t cols = x.dim(-1);
  const int64_t rows = cols == 0 ? 0 : x.numel() / cols;
  Tensor y = Tensor::Empty(x.shape(), x.dtype(), device, "softmax");
  Run(device, softmax_kernels.For(device).forward,
      SoftmaxForwardArgs{
          .x = x.data(), .y = y.mutable_data(), .dtype = x.dtype(), .rows = rows, .cols = cols});
  if (!Recording({&x})) return y;
  Record("softmax", {&x}, {&y}, [saved = Saved(y), rows, cols](BackwardPass& pass) {
    const Tensor y = saved.Get();
    Tensor dx = Tensor::Empty(y.shape(), y.dtype(), y.device(), "gradient of softmax");
    Run(y.device(), softmax_kernels.For(y.device()).backward,
        SoftmaxBackwardArgs{.y = y.data(),
                            .dy = pass.Gradient().data(),
                            .dx = dx.mutable_data(),
                            .dtype = y.dtype(),
                            .rows = rows,
                            .cols = cols});
    pass.Add(0, std::move(dx));
  });
  return y;
}

}  // namespace pando
