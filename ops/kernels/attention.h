#pragma once

// Scaled dot-product attention, as every device's kernels take it. The T x T scores are never
// stored: softmax is computed tile by tile with running maxima (Milakov and Gimelshein,
// arXiv 1805.02867; Dao et al., "FlashAttention", arXiv 2205.14135), and backward recomputes the
// probabilities from the saved log-sum-exp.

#include <cstdint>

#include "engine/kernel.h"
#include "engine/random.h"
#include "engine/types.h"

namespace pando {

/// Where rows of heads lie: row t of sample b starts at element b * batch_stride + t * row_stride,
/// and head h of it at + h * head_dim, contiguous. Covers packed activations (see PackedQkv), their
/// gradients, and key-value caches [B, Tmax, Hkv, D].
struct AttentionRows {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
};

/// As AttentionRows, read only.
struct ConstAttentionRows {
  const void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
};

/// Sizes, mask and dropout: the same for forward and backward.
///
/// Query i stands at position i + key_length - query_length, so that with a cache the new tokens
/// are the last ones. It sees key j if j < lengths[b] (where lengths are given) and, if causal, j
/// is not beyond its position. Query rows whose position is not below lengths[b], and rows that see
/// no key, give zeros and pass no gradient.
struct AttentionShape {
  DType dtype = DType::kF32;  ///< of all rows: f32, bf16 or f64 (f16 too on CUDA)
  int64_t batch = 0;
  int64_t query_heads = 0;  ///< a multiple of kv_heads; query head h reads kv head
                            ///< h / (query_heads / kv_heads)
  int64_t kv_heads = 0;
  int64_t query_length = 0;
  int64_t key_length = 0;
  int64_t head_dim = 0;
  double scale = 1.0;  ///< of the scores; usually 1 / sqrt(head_dim)
  bool causal = true;
  const int32_t* lengths = nullptr;  ///< [batch], each in [0, key_length], or null: all keys count

  /// Probability with which a probability is set to zero (others are scaled by 1 / (1 - dropout)).
  /// Element (sample_ids[b], ((h * query_length) + i) * key_length + j) of `random` decides:
  /// dropped where RandomBits < DropThreshold(dropout).
  double dropout = 0.0;
  RandomKey random;
  const int64_t* sample_ids = nullptr;  ///< [batch] global sample indices; needed with dropout
};

/// What the queries of one sample see (`lengths` must be readable where this is called).
struct AttentionVisible {
  int64_t offset;  ///< position of query 0
  int64_t keys;    ///< keys that count
  bool causal;
  int64_t first, end;  ///< queries that see any key; the rest give zeros

  PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE AttentionVisible(const AttentionShape& s, int64_t sample)
      : offset(s.key_length - s.query_length),
        keys(s.lengths != nullptr ? s.lengths[sample] : s.key_length),
        causal(s.causal),
        first(s.causal && offset < 0 ? -offset : 0),
        end(s.query_length < keys - offset ? s.query_length : keys - offset) {
    if (keys == 0 || end < first) end = first;
  }

  /// One past the last key that query i, one of [first, end), sees.
  PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE int64_t KeyEnd(int64_t i) const {
    return causal && i + offset + 1 < keys ? i + offset + 1 : keys;
  }
};

/// out = softmax(scale q k^T + mask) v.
struct AttentionForwardArgs {
  AttentionShape shape;
  ConstAttentionRows q;     ///< [batch, query_length, query_heads x head_dim]
  ConstAttentionRows k, v;  ///< [batch, key_length, kv_heads x head_dim]
  AttentionRows out;        ///< as q
  /// Log-sum-exp of each row's scaled scores, [batch, query_heads, query_length], f32 (f64 where
  /// dtype is f64); +infinity for rows that give zeros. Null if no backward will follow.
  void* lse = nullptr;
  void* scratch = nullptr;    ///< 64-byte aligned
  int64_t scratch_bytes = 0;  ///< at least what forward_scratch_bytes says
};

/// Gradients of q, k and v (written, not added to), from those of out. They may not overlap the
/// other arguments.
struct AttentionBackwardArgs {
  AttentionShape shape;
  ConstAttentionRows q, k, v, out;
  ConstAttentionRows dout;
  const void* lse = nullptr;  ///< as forward wrote it
  AttentionRows dq, dk, dv;
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
};

/// One device's attention. Scratch sizes depend on the shape and on the device's parallelism.
struct AttentionKernels {
  Kernel<AttentionForwardArgs> forward;
  Kernel<AttentionBackwardArgs> backward;
  int64_t (*forward_scratch_bytes)(const AttentionShape& shape);
  int64_t (*backward_scratch_bytes)(const AttentionShape& shape);
};

/// q, k and v within packed activations [batch, T, (Hq + 2 Hkv) D]: heads of q, then of k, then of
/// v. `Rows` is AttentionRows or ConstAttentionRows.
template <typename Rows>
struct PackedQkv {
  Rows q, k, v;
};

/// Splits packed rows that start at `packed.data` by arithmetic on the pointer.
template <typename Rows>
PackedQkv<Rows> SplitPackedQkv(const AttentionShape& shape, const Rows& packed) {
  const int64_t bytes = shape.head_dim * SizeOf(shape.dtype);
  PackedQkv<Rows> parts{packed, packed, packed};
  using Byte = decltype(static_cast<const char*>(nullptr));
  const Byte base = static_cast<Byte>(packed.data);
  parts.k.data = const_cast<char*>(base + shape.query_heads * bytes);
  parts.v.data = const_cast<char*>(base + (shape.query_heads + shape.kv_heads) * bytes);
  return parts;
}

}  // namespace pando
