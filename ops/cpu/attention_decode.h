#pragma once

#include "ops/kernels/attention.h"

namespace pando::PANDO_ISA {

/// Whether queries are so few, as in generation, that most lanes of attention.cc's tiles would be
/// idle, and the shape is within what AttentionDecode does (no dropout).
bool AttentionDecodes(const AttentionShape& shape);

/// AttentionKernels::forward on the CPU where AttentionDecodes.
void AttentionDecode(const AttentionForwardArgs& args);

/// Its scratch.
int64_t AttentionDecodeScratchBytes(const AttentionShape& shape);

}  // namespace pando::PANDO_ISA
