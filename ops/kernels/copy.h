#pragma once

// Copies between strided boxes: transposes, slices, concatenation, broadcasting, and their backward
// passes. ops/strided.h makes the index of each.

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"
#include "ops/kernels/strided.h"

namespace pando {

/// y = x over `index` (operands y, x). Any dtype. x and y must not overlap, nor y repeat an
/// element.
struct CopyArgs {
  DType dtype;
  void* y;
  const void* x;
  StridedIndex<2> index;
};

/// y += x over `index` (operands y, x). x is of `x_dtype`: f32, bf16, f16, f64; y the same or f32.
/// The same elements may not occur twice in y.
struct AddIntoArgs {
  void* y;
  DType y_dtype;
  const void* x;
  DType x_dtype;
  StridedIndex<2> index;
};

/// y[i] = x[i] between dtypes of which at least one is an integer; n contiguous elements. To
/// integers: towards zero, saturating, NaN to 0 (i64 to i32 keeps the low 32 bits). From integers:
/// to nearest, ties to even. Floating to floating is the device's own cast
/// (engine/vector_kernels.h).
struct IntegerCastArgs {
  void* y;
  DType y_dtype;
  const void* x;
  DType x_dtype;
  int64_t n;
};

/// What each device supplies.
struct CopyKernels {
  Kernel<CopyArgs> copy;
  Kernel<AddIntoArgs> add_into;
  Kernel<IntegerCastArgs> integer_cast;
};

}  // namespace pando
