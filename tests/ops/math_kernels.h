#pragma once

#include <cstdint>

namespace pando {

/// The functions of ops/math.h over n elements, as kernels would use them.
struct MathKernels {
  void (*exp)(const float* x, float* y, int64_t n);
  void (*gelu)(const float* x, float* y, int64_t n);
  void (*gelu_derivative)(const float* x, float* y, int64_t n);
};

}  // namespace pando
