#pragma once

#include "engine/random.h"
#include "engine/tensor.h"

namespace pando {

/// Each element of x [B, ...] becomes 0 with probability p, else x / (1 - p). Whether element e of
/// sample b is dropped depends on (key, sample_ids[b], e) alone: not on rank, split or batch. The
/// mask is not stored. sample_ids i64 [B]. p = 0 returns x itself.
Tensor Dropout(const Tensor& x, double p, const RandomKey& key, const Tensor& sample_ids);

}  // namespace pando
