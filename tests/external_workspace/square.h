#pragma once

#include <cstdint>

#include "engine/kernel.h"

namespace pando {

/// y[i] = x[i]^2 for i in [0, n).
struct SquareArgs {
  const float* x;
  float* y;
  int64_t n;
};

struct SquareKernels {
  Kernel<SquareArgs> forward;
};

/// The kernels of the instruction-set level in use.
const SquareKernels& CpuSquareKernels();

}  // namespace pando
