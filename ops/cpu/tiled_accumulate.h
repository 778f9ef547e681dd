#pragma once

#include "ops/kernels/matmul.h"

namespace pando {

/// Whether a product that oneDNN can compute and that adds to C is better computed a block of rows
/// at a time into scratch and then added: bf16 weight gradients (A transposed, C f32) too large for
/// the cache. oneDNN adds each of its small tiles to C as it finishes it, and waits for memory each
/// time: for GPT-2's head and 256 tokens 305 GF/s, against 415 in blocks.
bool UsesTiledAccumulate(const MatmulArgs& args);

/// Bytes of scratch for TiledAccumulate.
int64_t TiledAccumulateScratchBytes(const MatmulArgs& args);

/// The product, if UsesTiledAccumulate.
void TiledAccumulate(const MatmulArgs& args);

}  // namespace pando
