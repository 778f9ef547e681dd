#pragma once

#include "engine/bounded_cache.h"
#include "ops/kernels/matmul.h"

namespace pando {

/// Whether oneDNN has a fast path for these args on this processor: f32 always, bf16 with AVX512,
/// and layouts for which it has more than its reference code. Makes the primitive if it has to.
bool OneDnnCanMultiply(const MatmulArgs& args);

/// Bytes of scratch for OneDnnMultiply.
int64_t OneDnnScratchBytes(const MatmulArgs& args);

/// The product, if OneDnnCanMultiply. No size may be 0.
void OneDnnMultiply(const MatmulArgs& args);

/// Of the cache of primitives.
CacheStats OneDnnMatmulCacheStats();

}  // namespace pando
