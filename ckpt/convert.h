#pragma once

#include <cstdint>

#include "engine/types.h"

namespace pando {

/// Whether ConvertElements can: any floating type to any floating type, integers to themselves.
bool CanConvert(DType from, DType to);

/// Converts `count` elements, rounding to nearest even (f64 to a 16-bit type by way of f32).
/// `from` and `to` may be unaligned; they don't overlap.
void ConvertElements(DType from_type, const void* from, DType to_type, void* to, int64_t count);

}  // namespace pando
