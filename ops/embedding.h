#pragma once

#include <cstdint>

#include "engine/tensor.h"

namespace pando {

/// table[tokens]: tokens i32 [...], table [V, C] -> [..., C]. Ids outside [0, V) give zeros and set
/// the device's error flag (Device::CheckErrorFlag).
Tensor Embedding(const Tensor& tokens, const Tensor& table);

/// table[tokens] + positions[first_position + t]: tokens i32 [B, T], positions [P, C]. Throws
/// InvalidArgument if first_position + T > P.
Tensor PositionalEmbedding(const Tensor& tokens, const Tensor& table, const Tensor& positions,
                           int64_t first_position = 0);

}  // namespace pando
