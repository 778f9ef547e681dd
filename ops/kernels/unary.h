#pragma once

// Elementwise operations on one contiguous tensor.

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"

namespace pando {

/// Functions of one element.
enum class UnaryOp : uint8_t {
  kExp,
  kLog,
  kNeg,
  kSqrt,
  kTanh,
  kSigmoid,
  kSilu,  ///< x sigmoid(x)
  kRelu,
  kSquare,
  kReciprocal,
};

/// What the gradient of a unary operation is computed from.
enum class UnarySaves : uint8_t { kNothing, kInput, kOutput };

/// What a forward pass has to save of `op`. Output rather than input where both would do: often the
/// next operation saves that too.
constexpr UnarySaves SavedBy(UnaryOp op) {
  switch (op) {
    case UnaryOp::kNeg:
      return UnarySaves::kNothing;
    case UnaryOp::kLog:
    case UnaryOp::kSilu:
    case UnaryOp::kSquare:
      return UnarySaves::kInput;
    case UnaryOp::kExp:
    case UnaryOp::kSqrt:
    case UnaryOp::kTanh:
    case UnaryOp::kSigmoid:
    case UnaryOp::kRelu:
    case UnaryOp::kReciprocal:
      return UnarySaves::kOutput;
  }
  return UnarySaves::kInput;
}

/// y[i] = op(x[i]), both of `dtype`: f32, bf16, f16, f64. y may be x.
struct UnaryArgs {
  UnaryOp op;
  DType dtype;
  int64_t n;
  void* y;
  const void* x;
};

/// dx[i] = dy[i] * op'(x[i]), from `saved`: x or y as SavedBy(op) says. All of `dtype`: f32, bf16,
/// f16, f64. dx may be dy or saved. The derivative of relu at 0 is 0.
struct UnaryBackwardArgs {
  UnaryOp op;
  DType dtype;
  int64_t n;
  void* dx;
  const void* dy;
  const void* saved;
};

/// y[i] = a * x[i] + b, both of `dtype`: f32, bf16, f16, f64; computed in f32 (f64 for f64). y may
/// be x. Its backward is itself with b = 0.
struct AffineArgs {
  DType dtype;
  int64_t n;
  void* y;
  const void* x;
  double a;
  double b;
};

/// What each device supplies.
struct UnaryKernels {
  Kernel<UnaryArgs> forward;
  Kernel<UnaryBackwardArgs> backward;
  Kernel<AffineArgs> affine;
};

}  // namespace pando
