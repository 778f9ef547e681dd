#pragma once

// Elementwise operations. Two operands are broadcast together by NumPy's rules: dimensions are
// matched from the last, and one of size 1 (or absent) is repeated.

#include <cstdint>

#include "engine/tensor.h"

namespace pando {

/// a op b, of equal floating dtypes; one rounding. Throw InvalidArgument where shapes don't
/// broadcast.
Tensor Add(const Tensor& a, const Tensor& b);
Tensor Sub(const Tensor& a, const Tensor& b);
Tensor Mul(const Tensor& a, const Tensor& b);
Tensor Div(const Tensor& a, const Tensor& b);
/// The gradient goes to the operand taken; to a where they are equal.
Tensor Maximum(const Tensor& a, const Tensor& b);
Tensor Minimum(const Tensor& a, const Tensor& b);

/// op(x), elementwise.
Tensor Exp(const Tensor& x);
Tensor Log(const Tensor& x);
Tensor Neg(const Tensor& x);
Tensor Sqrt(const Tensor& x);
Tensor Tanh(const Tensor& x);
Tensor Sigmoid(const Tensor& x);
/// x sigmoid(x).
Tensor Silu(const Tensor& x);
/// max(x, 0), with derivative 0 at 0.
Tensor Relu(const Tensor& x);
Tensor Square(const Tensor& x);
/// 1 / x.
Tensor Reciprocal(const Tensor& x);
/// scale x + shift.
Tensor Affine(const Tensor& x, double scale, double shift = 0);

/// 1 where a op b holds, else 0: i32, for Where. Any dtype; NaN compares false but for NotEqual.
Tensor Equal(const Tensor& a, const Tensor& b);
Tensor NotEqual(const Tensor& a, const Tensor& b);
Tensor Less(const Tensor& a, const Tensor& b);
Tensor LessEqual(const Tensor& a, const Tensor& b);
Tensor Greater(const Tensor& a, const Tensor& b);
Tensor GreaterEqual(const Tensor& a, const Tensor& b);

/// condition != 0 ? a : b, all three broadcast together; condition i32.
Tensor Where(const Tensor& condition, const Tensor& a, const Tensor& b);

}  // namespace pando
