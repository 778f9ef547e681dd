#pragma once

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"

namespace pando {

/// y = Gelu(x + bias), GELU in its tanh form (ops/math.h), the bias of [cols] added to every row.
/// The sum x + bias, rounded to dtype, is what GELU is applied to, and is kept if backward is to
/// come.
struct GeluForwardArgs {
  const void* x;     ///< [rows, cols]
  const void* bias;  ///< [cols], or null
  void* pre;         ///< [rows, cols], the sum; may be x; null if it is not wanted
  void* y;           ///< [rows, cols]; may be x
  DType dtype;       ///< floating
  int64_t rows;
  int64_t cols;
};

/// dx = dy * Gelu'(pre), and the sum of dx over rows as the gradient of the bias.
struct GeluBackwardArgs {
  const void* pre;  ///< [rows, cols]: what GELU was applied to
  const void* dy;   ///< [rows, cols]
  void* dx;         ///< [rows, cols]; may be dy or pre
  void* dbias;      ///< [cols], f32 (f64 if dtype is f64), or null
  bool accumulate;  ///< add to dbias instead of writing it
  DType dtype;
  int64_t rows;
  int64_t cols;
  void* scratch;  ///< scratch(rows, cols, dtype) bytes if dbias is wanted
};

struct GeluKernels {
  Kernel<GeluForwardArgs> forward;
  Kernel<GeluBackwardArgs> backward;
  /// Bytes that backward with dbias needs as scratch.
  int64_t (*backward_scratch)(int64_t rows, int64_t cols, DType dtype);
};

}  // namespace pando
