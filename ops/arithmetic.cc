#include "ops/arithmetic.h"

#include <array>
#include <utility>

#include "ops/op_support.h"
#include "ops/strided.h"

namespace pando {
namespace {

Shape BroadcastShape(const char* op, const Shape& a, const Shape& b) {
  return Naming(op, [&] {
    int64_t dims[kMaxDims];
    const int64_t rank = BroadcastDims(a.dims(), b.dims(), dims);
    return Shape(std::vector<int64_t>(dims, dims + rank));
  });
}

/// For operations that take any dtype: both operands have the same, and the same device.
void CheckPair(const char* op, const Tensor& a, const Tensor& b) {
  Require(a.defined() && b.defined() && a.dtype() == b.dtype(), op, ": ", Describe(a), " beside ",
          Describe(b));
  Require(&a.device() == &b.device(), op, ": one tensor is on ", a.device().name(), ", another on ",
          b.device().name());
}

/// Runs `launch(SumOutput)` for the gradient of an input: `outputs` sums of `reduced` terms each.
template <typename Launch>
void SumInto(BackwardPass& pass, int input, int64_t outputs, int64_t reduced, Device& device,
             const Launch& launch) {
  GradientTarget target = pass.Target(input);
  Tensor scratch = Scratch(SumScratch(outputs, reduced) * SizeOf(DType::kF64), device, "sums");
  launch(SumOutput{.y = target.tensor.mutable_data(),
                   .dtype = target.tensor.dtype(),
                   .accumulate = target.accumulate,
                   .divisor = 1,
                   .scratch = static_cast<double*>(scratch.mutable_data())});
}

void BinaryGradient(BackwardPass& pass, BinaryOp op, int operand, const Tensor& a, const Tensor& b,
                    const Shape& a_shape, const Shape& b_shape) {
  if (!pass.Needs(operand)) return;
  const Tensor& dy = pass.Gradient();
  Device& device = dy.device();
  const std::array<Dims, 3> operands{dy.shape().dims(), a_shape.dims(), b_shape.dims()};
  const Shape& target = operand == 0 ? a_shape : b_shape;
  const ReduceIndex<3> index = ReduceBroadcast<3>(dy.shape().dims(), target.dims(), operands);
  SumInto(pass, operand, Count(index.kept), Count(index.reduced), device, [&](SumOutput dx) {
    Run(device, binary_kernels.For(device).backward,
        BinaryBackwardArgs{.op = op,
                           .operand = operand,
                           .dtype = dy.dtype(),
                           .dy = dy.data(),
                           .a = DataOrNull(a),
                           .b = DataOrNull(b),
                           .index = index,
                           .dx = dx});
  });
}

Tensor Binary(BinaryOp op, const char* name, const Tensor& a, const Tensor& b) {
  CheckFloating(name, a, {&b});
  Require(b.defined(), name, ": the second operand is undefined");
  Device& device = a.device();
  Tensor y = Tensor::Empty(BroadcastShape(name, a.shape(), b.shape()), a.dtype(), device, name);
  const std::array<Dims, 2> operands{a.shape().dims(), b.shape().dims()};
  Run(device, binary_kernels.For(device).forward,
      BinaryArgs{.op = op,
                 .dtype = a.dtype(),
                 .y = y.mutable_data(),
                 .a = a.data(),
                 .b = b.data(),
                 .index = Collapsed(BroadcastIndex<2>(y.shape().dims(), operands))});
  if (!Recording({&a, &b})) return y;
  // Keep only what the gradients that are wanted will read.
  const auto reads = [op, &a, &b](int operand) {
    return (a.requires_grad() && BinaryGradientReads(op, 0, operand)) ||
           (b.requires_grad() && BinaryGradientReads(op, 1, operand));
  };
  const auto backward = [op, a_shape = a.shape(), b_shape = b.shape(),
                         a = reads(0) ? Saved(a) : Saved(),
                         b = reads(1) ? Saved(b) : Saved()](BackwardPass& pass) {
    const Tensor a_value = a.Get(), b_value = b.Get();
    BinaryGradient(pass, op, 0, a_value, b_value, a_shape, b_shape);
    BinaryGradient(pass, op, 1, a_value, b_value, a_shape, b_shape);
  };
  Record(name, {&a, &b}, {&y}, backward);
  return y;
}

Tensor Unary(UnaryOp op, const char* name, const Tensor& x) {
  CheckFloating(name, x);
  Device& device = x.device();
  Tensor y = Tensor::Empty(x.shape(), x.dtype(), device, name);
  Run(device, unary_kernels.For(device).forward,
      UnaryArgs{
          .op = op, .dtype = x.dtype(), .n = x.numel(), .y = y.mutable_data(), .x = x.data()});
  if (!Recording({&x})) return y;
  Saved saved;
  if (SavedBy(op) == UnarySaves::kInput) saved = Saved(x);
  if (SavedBy(op) == UnarySaves::kOutput) saved = Saved(y);
  Record(name, {&x}, {&y}, [op, saved](BackwardPass& pass) {
    const Tensor& dy = pass.Gradient();
    const Tensor value = saved.Get();
    Tensor dx = Tensor::Empty(dy.shape(), dy.dtype(), dy.device(), "gradient");
    Run(dy.device(), unary_kernels.For(dy.device()).backward,
        UnaryBackwardArgs{.op = op,
                          .dtype = dy.dtype(),
                          .n = dy.numel(),
                          .dx = dx.mutable_data(),
                          .dy = dy.data(),
                          .saved = DataOrNull(value)});
    pass.Add(0, std::move(dx));
  });
  return y;
}

Tensor AffineForward(const Tensor& x, double scale, double shift) {
  Tensor y = Tensor::Empty(x.shape(), x.dtype(), x.device(), "affine");
  Run(x.device(), unary_kernels.For(x.device()).affine,
      AffineArgs{.dtype = x.dtype(),
                 .n = x.numel(),
                 .y = y.mutable_data(),
                 .x = x.data(),
                 .a = scale,
                 .b = shift});
  return y;
}

Tensor Compare(CompareOp op, const char* name, const Tensor& a, const Tensor& b) {
  CheckPair(name, a, b);
  Device& device = a.device();
  Tensor y = Tensor::Empty(BroadcastShape(name, a.shape(), b.shape()), DType::kI32, device, name);
  const std::array<Dims, 2> operands{a.shape().dims(), b.shape().dims()};
  Run(device, binary_kernels.For(device).compare,
      CompareArgs{.op = op,
                  .dtype = a.dtype(),
                  .y = y.mutable_data<int32_t>(),
                  .a = a.data(),
                  .b = b.data(),
                  .index = Collapsed(BroadcastIndex<2>(y.shape().dims(), operands))});
  return y;
}

}  // namespace

Tensor Add(const Tensor& a, const Tensor& b) { return Binary(BinaryOp::kAdd, "add", a, b); }
Tensor Sub(const Tensor& a, const Tensor& b) { return Binary(BinaryOp::kSub, "sub", a, b); }
Tensor Mul(const Tensor& a, const Tensor& b) { return Binary(BinaryOp::kMul, "mul", a, b); }
Tensor Div(const Tensor& a, const Tensor& b) { return Binary(BinaryOp::kDiv, "div", a, b); }
Tensor Maximum(const Tensor& a, const Tensor& b) { return Binary(BinaryOp::kMax, "maximum", a, b); }
Tensor Minimum(const Tensor& a, const Tensor& b) { return Binary(BinaryOp::kMin, "minimum", a, b); }

Tensor Exp(const Tensor& x) { return Unary(UnaryOp::kExp, "exp", x); }
Tensor Log(const Tensor& x) { return Unary(UnaryOp::kLog, "log", x); }
Tensor Neg(const Tensor& x) { return Unary(UnaryOp::kNeg, "neg", x); }
Tensor Sqrt(const Tensor& x) { return Unary(UnaryOp::kSqrt, "sqrt", x); }
Tensor Tanh(const Tensor& x) { return Unary(UnaryOp::kTanh, "tanh", x); }
Tensor Sigmoid(const Tensor& x) { return Unary(UnaryOp::kSigmoid, "sigmoid", x); }
Tensor Silu(const Tensor& x) { return Unary(UnaryOp::kSilu, "silu", x); }
Tensor Relu(const Tensor& x) { return Unary(UnaryOp::kRelu, "relu", x); }
Tensor Square(const Tensor& x) { return Unary(UnaryOp::kSquare, "square", x); }
Tensor Reciprocal(const Tensor& x) { return Unary(UnaryOp::kReciprocal, "reciprocal", x); }

Tensor Affine(const Tensor& x, double scale, double shift) {
  CheckFloating("affine", x);
  Tensor y = AffineForward(x, scale, shift);
  if (Recording({&x})) {
    Record("affine", {&x}, {&y},
           [scale](BackwardPass& pass) { pass.Add(0, AffineForward(pass.Gradient(), scale, 0)); });
  }
  return y;
}

Tensor Equal(const Tensor& a, const Tensor& b) { return Compare(CompareOp::kEqual, "equal", a, b); }
Tensor NotEqual(const Tensor& a, const Tensor& b) {
  return Compare(CompareOp::kNotEqual, "not_equal", a, b);
}
Tensor Less(const Tensor& a, const Tensor& b) { return Compare(CompareOp::kLess, "less", a, b); }
Tensor LessEqual(const Tensor& a, const Tensor& b) {
  return Compare(CompareOp::kLessEqual, "less_equal", a, b);
}
Tensor Greater(const Tensor& a, const Tensor& b) {
  return Compare(CompareOp::kGreater, "greater", a, b);
}
Tensor GreaterEqual(const Tensor& a, const Tensor& b) {
  return Compare(CompareOp::kGreaterEqual, "greater_equal", a, b);
}

Tensor Where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  CheckPair("where", a, b);
  CheckIndices("where", "conditions", condition, DType::kI32, a);
  Device& device = a.device();
  Tensor y = Tensor::Empty(
      BroadcastShape("where", BroadcastShape("where", a.shape(), b.shape()), condition.shape()),
      a.dtype(), device, "where");
  const std::array<Dims, 3> operands{condition.shape().dims(), a.shape().dims(), b.shape().dims()};
  Run(device, where_kernels.For(device).forward,
      WhereArgs{.dtype = a.dtype(),
                .y = y.mutable_data(),
                .cond = condition.data<int32_t>(),
                .a = a.data(),
                .b = b.data(),
                .index = Collapsed(BroadcastIndex<3>(y.shape().dims(), operands))});
  if (!Recording({&a, &b})) return y;
  const auto backward = [condition = Saved(condition),
                         shapes = std::array<Shape, 2>{a.shape(), b.shape()}](BackwardPass& pass) {
    const Tensor& dy = pass.Gradient();
    const Tensor cond = condition.Get();
    Device& device = dy.device();
    for (int operand = 0; operand < 2; ++operand) {
      if (!pass.Needs(operand)) continue;
      const std::array<Dims, 2> read{dy.shape().dims(), cond.shape().dims()};
      const ReduceIndex<2> index =
          ReduceBroadcast<2>(dy.shape().dims(), shapes[operand].dims(), read);
      SumInto(pass, operand, Count(index.kept), Count(index.reduced), device, [&](SumOutput dx) {
        Run(device, where_kernels.For(device).backward,
            WhereBackwardArgs{.operand = operand,
                              .dtype = dy.dtype(),
                              .dy = dy.data(),
                              .cond = cond.data<int32_t>(),
                              .index = index,
                              .dx = dx});
      });
    }
  };
  Record("where", {&a, &b}, {&y}, backward);
  return y;
}

}  // namespace pando
