#pragma once

#include <cstdint>

#include "engine/random.h"
#include "engine/tensor.h"

namespace pando {

struct AttentionOptions {
  int64_t heads = 1;
  /// Heads of keys and values, a divisor of heads; query head h reads kv head h / (heads /
  /// kv_heads). 0: as many as heads.
  int64_t kv_heads = 0;
  bool causal = true;
  /// Of the scores; 0: 1 / sqrt(head dimension).
  double scale = 0;
  /// Dropout of the probabilities, drawn from `random` by global sample (sample_ids, i64 [B]).
  double dropout = 0;
  RandomKey random = {};
  Tensor sample_ids = {};
  /// Valid keys of each sample, i32 [B]; undefined: all. Rows beyond give zeros.
  Tensor lengths = {};
};

/// softmax(scale Q K^T + mask) V over packed activations qkv [B, T, (Hq + 2 Hkv) D], heads of Q,
/// then of K, then of V: [B, T, Hq D]. The T x T scores are never stored (Dao et al., arXiv
/// 2205.14135). Throws InvalidArgument where sizes don't fit.
Tensor Attention(const Tensor& qkv, const AttentionOptions& options);

/// Attention of T new tokens to all tokens so far: appends the keys and values of qkv to the caches
/// [B, capacity, Hkv D] at row `past`, then computes as Attention does with the queries last. For
/// generation: records no gradient. Throws InvalidArgument if the cache is too small.
Tensor AttentionWithCache(const Tensor& qkv, Tensor& keys, Tensor& values, int64_t past,
                          const AttentionOptions& options);

}  // namespace pando
