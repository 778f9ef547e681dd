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
    // At 128, the compiler stays within its registers only with the code for dropout; that costs
    // a few instructions beside 64 products of matrices.
    constexpr bool kDropout = decltype(dropout)::value || kDim == 128;
    using Tile = KeyTile<T, kDim>;
    dim3 grid = HeadTiles(s, s.kv_heads, s.key_length, Tile::kRows);
    grid.y = kDim / Tile::kColumns;
    Launch(AttentionKeyGradientKernel<T, kDim, kDropout>, grid, Tile::kThreads,
           BackwardSharedBytes<T, kDim, Tile>(), stream, args, statistics, scalars);
  });
}

}  // namespace pando
