#pragma once

#include "engine/vector_kernels.h"

namespace pando {

/// The vector kernels on GPUs.
extern const VectorKernels kCudaVectorKernels;

/// VectorKernels::adamw on GPUs.
void CudaAdamW(const AdamWArgs& args, void* native_stream);

}  // namespace pando
