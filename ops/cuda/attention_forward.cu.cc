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
    using Tile = ForwardTile<T, kDim>;
    constexpr int kQueries = Tile::kWarps * kFragmentRows;
    Launch(AttentionForwardKernel<T, kDim, decltype(dropout)::value>,
           HeadTiles(s, s.query_heads, s.query_length, kQueries), Tile::kWarps * kWarpSize,
           SharedRows<T, kDim>::Bytes(kQueries + 2 * Tile::kKeys), stream, args, scalars);
  });
}

}  // namespace pando
