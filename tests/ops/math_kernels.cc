#include "tests/ops/math_kernels.h"

#include "ops/math.h"

namespace pando::PANDO_ISA {
namespace {

void ExpAll(const float* x, float* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = Exp(x[i]);
}

void LogAll(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Log(x[i]);
}

void TanhAll(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Tanh(x[i]);
}

void SigmoidAll(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Sigmoid(x[i]);
}

void SiluAll(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Silu(x[i]);
}

void SiluDerivativeAll(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = SiluDerivative(x[i]);
}

void GeluAll(const float* x, float* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = Gelu(x[i]);
}

void GeluDerivativeAll(const float* x, float* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = GeluDerivative(x[i]);
}

}  // namespace

extern const MathKernels kMathKernels;
const MathKernels kMathKernels = {
    .exp = ExpAll,
    .log = LogAll,
    .tanh = TanhAll,
    .sigmoid = SigmoidAll,
    .silu = SiluAll,
    .silu_derivative = SiluDerivativeAll,
    .gelu = GeluAll,
    .gelu_derivative = GeluDerivativeAll,
};

}  // namespace pando::PANDO_ISA
