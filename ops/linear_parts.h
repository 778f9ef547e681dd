#pragma once

// What operations with a linear layer inside are made of.

#include <cstdint>

#include "engine/tape.h"
#include "engine/tensor.h"
#include "ops/gemm.h"
#include "ops/linear.h"

namespace pando {

/// y [rows, out] = x [rows, in] W + bias, and how W lies.
struct LinearSizes {
  int64_t rows, in, out;
  WeightLayout layout;

  /// The product of forward.
  Gemm Forward() const {
    return {.transpose_b = layout == WeightLayout::kOutIn, .m = rows, .n = out, .k = in};
  }
  /// dx = dy W^T.
  Gemm Backward() const {
    return {.transpose_b = layout == WeightLayout::kInOut, .m = rows, .n = in, .k = out};
  }
};

/// Throws InvalidArgument, naming `op`, where sizes or dtypes don't fit.
LinearSizes CheckLinear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        WeightLayout layout);

/// An uninitialised tensor of x's shape with `last` as its last size.
Tensor WithLastSize(const Tensor& x, int64_t last, const char* name);

/// Adds dW = x^T dy to the gradient of input `weight`, and the sums of dy over rows to that of
/// `bias`, each if it is needed: in one product where the device can. x is looked at for dW only.
void AddParameterGradients(BackwardPass& pass, int weight, int bias, const Saved& x,
                           const Tensor& dy, const LinearSizes& sizes);

/// Adds dx = dy W^T to the gradient of `input` if it is needed.
void AddInputGradient(BackwardPass& pass, int input, const Tensor& dy, const Saved& weight,
                      const LinearSizes& sizes);

/// dx = dy * Gelu'(pre), both [rows, cols]; dx may be dy.
void GeluGradient(const Tensor& pre, const Tensor& dy, Tensor& dx, int64_t rows, int64_t cols);

}  // namespace pando
