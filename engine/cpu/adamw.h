#pragma once

#include "engine/vector_kernels.h"

namespace pando::PANDO_ISA {

/// VectorKernels::adamw on the CPU.
void AdamW(const AdamWArgs& args, void* stream);

}  // namespace pando::PANDO_ISA
