#pragma once

#include <cstdint>

#include "engine/flat_parameters.h"
#include "engine/tensor.h"

namespace pando {

/// AdamW's numbers (Loshchilov and Hutter, ICLR 2019), with the names and defaults of GPT training.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;               ///< for parameters declared with WeightDecay::kYes
  Rounding rounding = Rounding::kNearest;  ///< of the bf16 copy of the f32 masters
};

/// First and second moments, f32, of an interval of the flat parameter space, and the step on them.
class AdamW {
 public:
  /// Moments start at zero. Throws OutOfMemory.
  AdamW(FlatInterval interval, const AdamWOptions& options, Device& device);

  /// One step on the interval. `masters` (f32), `grads` (f32) and `values` (the dtype of
  /// computation; may be the masters themselves) hold the interval's elements, the first at index
  /// 0. `grad_scale` multiplies the gradients (clipping). `seed` draws stochastic rounding.
  void Step(const FlatLayout& layout, Tensor& masters, const Tensor& grads, Tensor& values,
            double learning_rate, double grad_scale, uint64_t seed);

  FlatInterval interval() const { return interval_; }
  Tensor& exp_avg() { return exp_avg_; }
  Tensor& exp_avg_sq() { return exp_avg_sq_; }
  /// Steps taken: the t of the bias correction.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }

 private:
  FlatInterval interval_;
  AdamWOptions options_;
  Tensor exp_avg_;
  Tensor exp_avg_sq_;
  int64_t steps_ = 0;
};

/// Sum of squares in f64, [1], on t's device: of gradients, the square of their norm. ZeRO adds up
/// the ranks' before anybody takes a root.
Tensor SumOfSquares(const Tensor& t);

/// min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_ has it; 1 if max_norm is 0.
double ClipFactor(double norm, double max_norm);

}  // namespace pando
