#pragma once

#include <cstdint>

namespace pando {

/// The functions of ops/math.h over n elements, as kernels would use them.
struct MathKernels {
  void (*exp)(const float* x, float* y, int64_t n);
  void (*log)(const float* x, float* y, int64_t n);
  void (*tanh)(const float* x, float* y, int64_t n);
  void (*sigmoid)(const float* x, float* y, int64_t n);
  void (*silu)(const float* x, float* y, int64_t n);
  void (*silu_derivative)(const float* x, float* y, int64_t n);
  void (*gelu)(const float* x, float* y, int64_t n);
  void (*gelu_derivative)(const float* x, float* y, int64_t n);
};

}  // namespace pando
