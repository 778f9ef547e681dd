#pragma once

#include "ops/kernels/attention.h"

namespace pando {

/// Throws InvalidArgument unless CUDA has kernels for the shape.
void CheckAttentionShape(const AttentionShape& s);

}  // namespace pando
