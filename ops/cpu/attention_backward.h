#pragma once

#include "ops/kernels/attention.h"

namespace pando::PANDO_ISA {

/// AttentionKernels::backward on the CPU.
void AttentionBackward(const AttentionBackwardArgs& args, void* stream);

/// AttentionKernels::backward_scratch_bytes on the CPU.
int64_t AttentionBackwardScratchBytes(const AttentionShape& shape);

}  // namespace pando::PANDO_ISA
