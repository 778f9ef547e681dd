#pragma once

#include "ops/kernels/matmul.h"

namespace pando {

/// C = (keep ? C : 0) + (bias ? bias repeated over rows : 0): what is left of a product without
/// terms, and for biases of a dtype that cuBLASLt's epilogues don't take.
void CudaAddBias(const MatmulArgs& args, bool keep, void* native_stream);

}  // namespace pando
