#include "ops/cuda/attention_forward.h"

#include "engine/cuda/launch.h"
#include "ops/cuda/attention_launch.h"

namespace pando {

void AttentionForward(const AttentionForwardArgs& args, const AttentionScalars& scalars,
                      void* stream) {
  const AttentionShape& s = args.shape;
  DispatchAttention(s, [&](auto tag, auto dim, auto dropout) {
    using T = decltype(tag);
    constexpr int kDim = decltype(dim)::value;
    constexpr bool kDropout = decltype(dropout)::value;
    using Tile = ForwardTile<T, kDim, kDropout>;
    Launch(AttentionForwardKernel<T, kDim, kDropout>,
           HeadTiles(s, s.query_heads, s.query_length, Tile::kQueries), Tile::kThreads,
           SharedRows<T, kDim>::Bytes(Tile::kQueries + 2 * Tile::kKeys), stream, args, scalars);
  });
}

}  // namespace pando
