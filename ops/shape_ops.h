#pragma once

// Operations that move elements. Reshape is a method of Tensor: it moves nothing.

#include <cstdint>
#include <vector>

#include "engine/tensor.h"

namespace pando {

/// Dimension d of the result is dimension permutation[d] of x. Throws InvalidArgument unless it is
/// a permutation.
Tensor Permute(const Tensor& x, const std::vector<int64_t>& permutation);

/// The last two dimensions exchanged.
Tensor Transpose(const Tensor& x);

/// Elements [start, start + length) of dimension `dim` (negative: from the end).
Tensor Slice(const Tensor& x, int64_t dim, int64_t start, int64_t length);

/// Tensors one behind the other along `dim`; their other sizes and dtypes are equal.
Tensor Concat(const std::vector<Tensor>& parts, int64_t dim);

/// x in another dtype: floating to nearest, ties to even; to integers towards zero. Differentiable
/// between floating dtypes.
Tensor Cast(const Tensor& x, DType dtype);

}  // namespace pando
