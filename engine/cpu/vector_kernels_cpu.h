#pragma once

#include "engine/vector_kernels.h"

namespace pando {

/// The CPU's vector kernels, for this processor's instruction set.
const VectorKernels& CpuVectorKernels();

}  // namespace pando
