#pragma once

// The vector kernels that every device supplies: what optimizer, dist and ckpt do to flat memory.
// All work on n contiguous elements; n may be 0. Wherever a `const float*` scalar is given, it lies
// in device memory and is read when the kernel runs, so that a factor computed on the device
// (gradient clipping) needs no wait on the host. Results don't depend on the number of threads.

#include <cstdint>

#include "engine/kernel.h"
#include "engine/random.h"
#include "engine/types.h"

namespace pando {

/// y[i] = value, converted to `dtype` (any; integers by truncation).
struct FillArgs {
  void* y;
  DType dtype;
  int64_t n;
  double value;
};

/// y[i] += a * x[i], with a multiplied by *factor unless that is null. Floating dtypes: x and y the
/// same, or x bf16 or f16 and y f32. Computed in y's compute type.
struct AxpyArgs {
  void* y;
  DType y_dtype;
  const void* x;
  DType x_dtype;
  int64_t n;
  double a;
  const float* factor;
};

/// x[i] *= a, with a multiplied by *factor unless that is null. Any floating dtype.
struct ScaleArgs {
  void* x;
  DType dtype;
  int64_t n;
  double a;
  const float* factor;
};

/// y[i] = x[i] rounded to nearest, ties to even. Any floating dtypes; x and y must not overlap.
struct CastArgs {
  void* y;
  DType y_dtype;
  const void* x;
  DType x_dtype;
  int64_t n;
};

/// y[i] = x[i] rounded to one of its two bf16 neighbours, to each with a probability proportional
/// to the nearness (StochasticBFloat16). Element i draws RandomBits(key, 0, first_element + i), so
/// that a parameter rounds alike whatever interval it is held in.
struct StochasticCastArgs {
  BFloat16* y;
  const float* x;
  int64_t n;
  RandomKey key;
  int64_t first_element;
};

/// *out = sum of x[i]^2, in f64; added to *out if `accumulate`. Any floating dtype. `scratch` is
/// SumSquaresScratch(n) doubles.
struct SumSquaresArgs {
  const void* x;
  DType dtype;
  int64_t n;
  double* scratch;
  double* out;
  bool accumulate;
};

/// Elements summed into one partial sum; partial sums are added in order.
inline constexpr int64_t kSumSquaresChunk = 32768;

/// Doubles of scratch that a sum of squares over n elements needs.
constexpr int64_t SumSquaresScratch(int64_t n) {
  return (n + kSumSquaresChunk - 1) / kSumSquaresChunk;
}

/// *flag |= 1 if any x[i] is infinite or not a number; otherwise *flag is left alone. Any floating
/// dtype.
struct NonFiniteArgs {
  const void* x;
  DType dtype;
  int64_t n;
  int32_t* flag;
};

/// How AdamW rounds the copy of the parameters.
enum class Rounding : uint8_t { kNearest, kStochastic };

/// One step of AdamW (Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019, in
/// the arrangement of torch.optim.AdamW) on f32 masters p and moments m, v, all updated in place:
///
///   g = grad * grad_scale * *grad_factor       (grad_factor null: 1)
///   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
///   p = p (1 - lr weight_decay) - lr / bias_correction1 * m / (sqrt(v / bias_correction2) + eps)
///
/// and, unless `copy` is null, copy = p rounded to copy_dtype (f32, bf16, f16; stochastic rounding
/// for bf16 only, drawn as in StochasticCastArgs).
struct AdamWArgs {
  float* p;
  float* m;
  float* v;
  const float* grad;
  int64_t n;

  void* copy;
  DType copy_dtype;
  Rounding rounding;
  RandomKey key;
  int64_t first_element;

  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  double bias_correction1;  ///< 1 - beta1^t at step t = 1, 2, ...
  double bias_correction2;  ///< 1 - beta2^t
  double grad_scale;
  const float* grad_factor;
};

/// The table that each kind of device fills.
struct VectorKernels {
  Kernel<FillArgs> fill;
  Kernel<AxpyArgs> axpy;
  Kernel<ScaleArgs> scale;
  Kernel<CastArgs> cast;
  Kernel<StochasticCastArgs> stochastic_cast;
  Kernel<SumSquaresArgs> sum_squares;
  Kernel<NonFiniteArgs> non_finite;
  Kernel<AdamWArgs> adamw;
};

}  // namespace pando
