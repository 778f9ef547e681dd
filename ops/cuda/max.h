#pragma once

#include "ops/kernels/reduce.h"

namespace pando {

/// ReduceKernels::max and max_backward.
void CudaMax(const MaxArgs& args, void* stream);
void CudaMaxBackward(const MaxBackwardArgs& args, void* stream);

}  // namespace pando
