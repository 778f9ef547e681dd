#pragma once

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"

namespace pando {

/// y = (x - mean) * rstd * weight + bias over each row, with mean and variance of the row
/// (Ba, Kiros & Hinton, "Layer normalization", 2016). "Compute dtype" below is f32, or f64 where
/// `dtype` is f64.
///
/// With `residual`, s = x + residual, rounded to dtype, is written to `sum` and normalised instead
/// of x: the residual stream of a transformer needs one pass instead of two.
struct LayerNormForwardArgs {
  const void* x;         ///< [rows, cols]
  const void* residual;  ///< [rows, cols], or null
  void* sum;             ///< [rows, cols] if residual is given; may be x or residual
  const void* weight;    ///< [cols]
  const void* bias;      ///< [cols], or null
  void* y;               ///< [rows, cols]; may be x unless backward is to come
  void* mean;            ///< [rows], compute dtype
  void* rstd;            ///< [rows], compute dtype: 1 / sqrt(variance + eps)
  DType dtype;           ///< floating
  int64_t rows;
  int64_t cols;
  double eps;
};

/// Gradients of LayerNormForward. `x` is what was normalised (the sum, if there was a residual).
struct LayerNormBackwardArgs {
  const void* x;       ///< [rows, cols]
  const void* weight;  ///< [cols]
  const void* dy;      ///< [rows, cols]
  const void* mean;    ///< [rows], compute dtype
  const void* rstd;    ///< [rows], compute dtype
  const void* dsum;    ///< [rows, cols], added to dx: what arrives by the residual path; or null
  void* dx;            ///< [rows, cols]; may be dy or dsum (which then accumulates)
  void* dweight;       ///< [cols], compute dtype, or null
  void* dbias;         ///< [cols], compute dtype, or null
  bool accumulate;     ///< add to dweight and dbias instead of writing them
  DType dtype;
  int64_t rows;
  int64_t cols;
  void* scratch;  ///< backward_scratch(rows, cols, dtype) bytes
};

struct LayerNormKernels {
  Kernel<LayerNormForwardArgs> forward;
  Kernel<LayerNormBackwardArgs> backward;
  /// Bytes that backward needs as scratch.
  int64_t (*backward_scratch)(int64_t rows, int64_t cols, DType dtype);
};

}  // namespace pando
