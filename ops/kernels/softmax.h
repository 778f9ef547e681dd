#pragma once

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"

namespace pando {

/// y = exp(x - max) / sum exp(x - max) over each row.
struct SoftmaxForwardArgs {
  const void* x;  ///< [rows, cols]
  void* y;        ///< [rows, cols]; may be x
  DType dtype;    ///< floating
  int64_t rows;
  int64_t cols;
};

/// dx = y * (dy - sum(y * dy)) over each row.
struct SoftmaxBackwardArgs {
  const void* y;   ///< [rows, cols]
  const void* dy;  ///< [rows, cols]
  void* dx;        ///< [rows, cols]; may be y or dy
  DType dtype;
  int64_t rows;
  int64_t cols;
};

struct SoftmaxKernels {
  Kernel<SoftmaxForwardArgs> forward;
  Kernel<SoftmaxBackwardArgs> backward;
};

}  // namespace pando
