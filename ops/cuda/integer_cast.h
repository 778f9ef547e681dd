#pragma once

#include "ops/kernels/copy.h"

namespace pando {

/// CopyKernels::integer_cast.
void CudaIntegerCast(const IntegerCastArgs& args, void* stream);

}  // namespace pando
