#pragma once

// Elementwise operations on two tensors with NumPy's broadcasting.

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"
#include "ops/kernels/reduce.h"
#include "ops/kernels/strided.h"

namespace pando {

/// kMax and kMin give NaN if either operand is NaN; equal operands count as the first.
enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kMax, kMin };

/// Comparisons with NaN are false, but for kNotEqual.
enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

/// y = a op b over `index` (operands a, b); y is row-major and contiguous, and may be a or b where
/// that has y's shape. All of `dtype`: f32, bf16, f16, f64; one rounding.
struct BinaryArgs {
  BinaryOp op;
  DType dtype;
  void* y;
  const void* a;
  const void* b;
  StridedIndex<2> index;
};

/// The gradient of one operand of a BinaryOp, summed over the dimensions in which it was broadcast:
/// dx = sum of dy * d(a op b)/d(operand). `index` has the operands dy, a, b; dx is contiguous in
/// the shape of its operand. dy, a and b are of `dtype`. a and b may be null where
/// BinaryGradientReads says so. kDiv: d/db = -a / b^2. kMax, kMin: all to the operand taken.
struct BinaryBackwardArgs {
  BinaryOp op;
  int operand;  ///< 0: a, 1: b
  DType dtype;
  const void* dy;
  const void* a;
  const void* b;
  ReduceIndex<3> index;
  SumOutput dx;
};

/// y = a op b ? 1 : 0 over `index` (operands a, b); y is row-major and contiguous. a and b are of
/// `dtype`: any.
struct CompareArgs {
  CompareOp op;
  DType dtype;
  int32_t* y;
  const void* a;
  const void* b;
  StridedIndex<2> index;
};

/// Whether the gradient of operand `of` (0: a, 1: b) of `op` reads the value of operand `reads`:
/// what a forward pass has to save.
constexpr bool BinaryGradientReads(BinaryOp op, int of, int reads) {
  switch (op) {
    case BinaryOp::kAdd:
    case BinaryOp::kSub:
      return false;
    case BinaryOp::kMul:
      return reads != of;
    case BinaryOp::kDiv:
      return reads == 1 || of == 1;
    case BinaryOp::kMax:
    case BinaryOp::kMin:
      return true;
  }
  return true;
}

/// What each device supplies.
struct BinaryKernels {
  Kernel<BinaryArgs> forward;
  Kernel<BinaryBackwardArgs> backward;
  Kernel<CompareArgs> compare;
};

}  // namespace pando
