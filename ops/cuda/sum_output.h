#pragma once

// Where sums go, and how the work of a sum is shared out.

#include "ops/cuda/pieces.h"
#include "ops/kernels/reduce.h"

namespace pando {

/// f64 if either is.
template <typename A, typename B>
using WiderType = decltype(A{} + B{});

template <typename Y, int W, typename S>
__device__ inline void StoreSumsAs(const SumOutput& out, int64_t first, bool wide, int n,
                                   const S (&sum)[W]) {
  using A = WiderType<S, ComputeType<Y>>;
  Y* y = static_cast<Y*>(out.y) + first;
  Y v[W];
  if (out.accumulate) LoadPiece(y, 1, wide, n, v);
  for (int j = 0; j < W; ++j) {
    A total = sum[j];
    // Terms that are not f64 yet are not divided (SumTerms).
    if (sizeof(S) == sizeof(double) && out.divisor != 1) total /= static_cast<A>(out.divisor);
    if (out.accumulate) total += ToFloat(v[j]);
    v[j] = RoundTo<Y>(static_cast<ComputeType<Y>>(total));
  }
  StorePiece(y, 1, wide, n, v);
}

/// Stores, or adds, outputs first, ..., first + n - 1.
template <int W, typename S>
__device__ inline void StoreSums(const SumOutput& out, int64_t first, bool wide, int n,
                                 const S (&sum)[W]) {
  switch (out.dtype) {
    case DType::kF32:
      return StoreSumsAs<float>(out, first, wide, n, sum);
    case DType::kBF16:
      return StoreSumsAs<BFloat16>(out, first, wide, n, sum);
    case DType::kF16:
      return StoreSumsAs<Float16>(out, first, wide, n, sum);
    default:
      return StoreSumsAs<double>(out, first, wide, n, sum);
  }
}

/// Blocks that keep a large GPU busy. A constant, as results must not depend on the GPU's size.
inline constexpr int64_t kEnoughBlocks = 264;

/// How a sum is shared out; see SumPlan.
struct Shares {
  int64_t parts;
  int64_t part_size;
  int lanes;
};

/// For SumAcross: a power of 2 of threads beside each other, as many as leave the others of a block
/// some terms each, and fewer where blocks would be few.
inline Shares ShareAcross(ReduceChunks cut, int64_t pieces) {
  constexpr int kLeastLanes = 4;
  constexpr int64_t kTermsEach = 4;
  int lanes = static_cast<int>(kPieceThreads);
  int groups = 1;
  const auto too_few = [&] {
    const int64_t blocks = (pieces + lanes - 1) / lanes * cut.count;
    return groups < 8 || lanes / 2 >= pieces || (blocks < kEnoughBlocks && lanes > kLeastLanes);
  };
  while (groups * kTermsEach <= cut.length && lanes > 1 && too_few()) {
    groups *= 2;
    lanes /= 2;
  }
  return {cut.count, cut.length, lanes};
}

/// For SumAlong: a power of 2 of warps for an output.
inline Shares ShareAlong(ReduceChunks cut, int64_t pieces, int64_t outputs) {
  constexpr int kMostWarps = 16;
  constexpr int64_t kPiecesPerThread = 4;
  const int64_t part_size = (pieces + cut.count - 1) / cut.count;
  const int64_t parts = (pieces + part_size - 1) / part_size;
  int warps = 1;
  while (warps < kMostWarps && part_size > Wide(warps * kWarpSize * kPiecesPerThread) &&
         outputs * parts / (kMostWarps / warps) < 4 * kEnoughBlocks) {
    warps *= 2;
  }
  return {parts, part_size, warps};
}

/// out = the sums of their parts, out.scratch[part][output], in order.
void AddParts(const SumOutput& out, int64_t outputs, int64_t parts, void* stream);

}  // namespace pando
