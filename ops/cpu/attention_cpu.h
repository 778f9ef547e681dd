#pragma once

#include "ops/kernels/attention.h"

namespace pando {

/// The CPU's attention, for this processor's instruction set.
const AttentionKernels& CpuAttentionKernels();

}  // namespace pando
