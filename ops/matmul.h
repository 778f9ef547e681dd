#pragma once

#include "engine/tensor.h"

namespace pando {

struct MatmulOptions {
  bool transpose_a = false;  ///< use the last two dimensions of a exchanged
  bool transpose_b = false;
};

/// a b over the last two dimensions: a [..., M, K], b [..., K, N] -> [..., M, N]. Leading
/// dimensions must be equal, or absent in one of the two, which then serves for all. Computed in
/// f32 (f64 for f64), rounded once. Throws InvalidArgument where shapes or dtypes don't fit.
Tensor Matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

}  // namespace pando
