#pragma once

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"

namespace pando {

/// sums[c] = sum over rows of x[r, c]: the gradient of a bias.
struct ColumnSumsArgs {
  const void* x;  ///< [rows, cols], floating
  DType dtype;
  int64_t rows;
  int64_t cols;
  void* sums;       ///< [cols], f32 (f64 if dtype is f64)
  bool accumulate;  ///< add to sums instead of writing them
  void* scratch;    ///< scratch(rows, cols, dtype) bytes
};

struct ColumnSumsKernels {
  Kernel<ColumnSumsArgs> run;
  int64_t (*scratch)(int64_t rows, int64_t cols, DType dtype);
};

}  // namespace pando
