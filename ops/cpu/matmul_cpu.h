#pragma once

#include "ops/kernels/matmul.h"

namespace pando {

/// The CPU's matrix multiplication: oneDNN where it has a fast path, else our own packed kernel.
const MatmulKernels& CpuMatmulKernels();

/// Our own alone, for this processor's instruction set: any dtype, any layout. Its results don't
/// depend on the number of threads.
const MatmulKernels& CpuPackedMatmulKernels();

}  // namespace pando
