#pragma once

#include <cstdint>

#include "dist/communicator/communicator.h"
#include "engine/types.h"

namespace pando {

/// into[i] = into[i] + from[i], or the larger of the two, for `count` elements in host memory; bf16
/// and f16 are added in f32 and rounded to the nearest. A NaN stays one.
void ReduceElements(DType dtype, ReduceOp op, void* into, const void* from, int64_t count);

}  // namespace pando
