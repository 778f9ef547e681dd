#pragma once

#include <cstdint>
#include <vector>

#include "engine/tensor.h"

namespace pando {

/// Sum of x over `dims` (negative ones count from the end; none: over all), which disappear from
/// the shape, or stay with size 1 if `keep_dims`. Sums of nothing are 0. Throws InvalidArgument for
/// a dimension that does not exist or is named twice.
Tensor Sum(const Tensor& x, std::vector<int64_t> dims = {}, bool keep_dims = false);

/// Sum divided by the number of terms.
Tensor Mean(const Tensor& x, std::vector<int64_t> dims = {}, bool keep_dims = false);

/// Largest element over `dims`; its gradient goes to the first such element. NaN is largest of all.
Tensor Max(const Tensor& x, std::vector<int64_t> dims = {}, bool keep_dims = false);

/// exp(x) / sum of exp(x) over the last dimension.
Tensor Softmax(const Tensor& x);

}  // namespace pando
