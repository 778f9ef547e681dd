#include "engine/cuda/launch.h"
#include "ops/cuda/attention_backward.h"
#include "ops/cuda/attention_launch.h"

namespace pando {

void AttentionQueryGradient(const AttentionBackwardArgs& args, const QueryStatistics& statistics,
                            const AttentionScalars& scalars, void* stream) {
  const AttentionShape& s = args.shape;
  DispatchAttention(s, [&](auto tag, auto dim, auto dropout) {
    using T = decltype(tag);
    constexpr int kDim = decltype(dim)::value;
    using Tile = QueryTile<T, kDim>;
    const dim3 grid = HeadTiles(s, s.query_heads, s.query_length, Tile::kRows);
    Launch(AttentionQueryGradientKernel<T, kDim, decltype(dropout)::value>, grid, Tile::kThreads,
           BackwardSharedBytes<T, kDim, Tile>(), stream, args, statistics, scalars);
  });
}

}  // namespace pando
