#pragma once

#include <cstdint>

#include "engine/types.h"

namespace pando {

/// Bytes of parameters, gradients and optimizer state that a rank holds between steps, of `size`
/// elements in all and `own` in its interval: see docs/zero.md.
int64_t ZeroStateBytes(int stage, DType dtype, int64_t size, int64_t own);

}  // namespace pando
