#pragma once

// Choosing between two tensors by a mask, with broadcasting.

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"
#include "ops/kernels/reduce.h"
#include "ops/kernels/strided.h"

namespace pando {

/// y = cond != 0 ? a : b over `index` (operands cond, a, b); y is row-major and contiguous, and may
/// be a or b where that has y's shape. a, b and y are of `dtype`: any.
struct WhereArgs {
  DType dtype;
  void* y;
  const int32_t* cond;
  const void* a;
  const void* b;
  StridedIndex<3> index;
};

/// The gradient of a (operand 0) or b (operand 1): dy where that one was taken, summed over the
/// dimensions in which it was broadcast. `index` has the operands dy, cond. dy is of `dtype`: f32,
/// bf16, f16, f64.
struct WhereBackwardArgs {
  int operand;
  DType dtype;
  const void* dy;
  const int32_t* cond;
  ReduceIndex<2> index;
  SumOutput dx;
};

/// What each device supplies.
struct WhereKernels {
  Kernel<WhereArgs> forward;
  Kernel<WhereBackwardArgs> backward;
};

}  // namespace pando
