#pragma once

// From an attention's shape at run time to the kernels' template arguments, on the host. Kernels
// are spread over several sources, which nvcc takes long over.

#include <type_traits>

#include "engine/cuda/dispatch.h"
#include "ops/cuda/attention_tile.h"

namespace pando {

/// Queues the kernels of attention_forward.h and attention_backward.h.
void AttentionForward(const AttentionForwardArgs& args, const AttentionScalars& scalars,
                      void* stream);
void AttentionQueryGradient(const AttentionBackwardArgs& args, const QueryStatistics& statistics,
                            const AttentionScalars& scalars, void* stream);
void AttentionKeyGradient(const AttentionBackwardArgs& args, const QueryStatistics& statistics,
                          const AttentionScalars& scalars, void* stream);

/// Attention of few queries (attention_decode.cu.cc): whether the shape is for it, its scratch, and
/// queueing it.
bool AttentionDecodes(const AttentionShape& s);
int64_t AttentionDecodeScratchBytes(const AttentionShape& s);
void AttentionDecode(const AttentionForwardArgs& args, const AttentionScalars& scalars,
                     void* stream);

/// Calls body(T{}, dim, dropout), the latter two std::integral_constant: kernels for the element
/// type, for rows of at most `dim` elements, with dropout if it says true. To have fewer kernels,
/// those that matter less always do.
template <typename Body>
void DispatchAttention(const AttentionShape& s, const Body& body) {
  const auto with_dim = [&](auto tag, auto dim) {
    constexpr bool kAlwaysDrops = sizeof(tag) == 4 || decltype(dim)::value == 256;
    if constexpr (!kAlwaysDrops) {
      if (s.dropout == 0) return body(tag, dim, std::false_type{});
    }
    body(tag, dim, std::true_type{});
  };
  DispatchCuda<float, BFloat16, Float16>("attention", s.dtype, [&](auto tag) {
    if (s.head_dim <= 64) return with_dim(tag, std::integral_constant<int, 64>{});
    if (s.head_dim <= 128) return with_dim(tag, std::integral_constant<int, 128>{});
    with_dim(tag, std::integral_constant<int, 256>{});
  });
}

}  // namespace pando
