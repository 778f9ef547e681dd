#include "engine/cuda/launch.h"
#include "ops/cuda/attention_backward.h"
#include "ops/cuda/attention_launch.h"

namespace pando {

void AttentionKeyGradient(const AttentionBackwardArgs& args, const QueryStatistics& statistics,
                          const AttentionScalars& scalars, void* stream) {
  const AttentionShape& s = args.shape;
  DispatchAttention(s, [&](auto tag, auto dim, auto dropout) {
    using T = decltype(tag);
    constexpr int kDim = decltype(dim)::value;
    using Tile = BackwardTile<T, kDim>;
    dim3 grid = HeadTiles(s, s.kv_heads, s.key_length, Tile::kWarps * kFragmentRows);
    grid.y = kDim / Tile::kColumns;
    Launch(AttentionKeyGradientKernel<T, kDim, decltype(dropout)::value>, grid,
           Tile::kWarps * kWarpSize, BackwardSharedBytes<T, kDim>(), stream, args, statistics,
           scalars);
  });
}

}  // namespace pando
