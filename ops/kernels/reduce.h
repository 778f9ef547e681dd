#pragma once

// Sums, means and maxima over dimensions.

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"
#include "ops/kernels/strided.h"

namespace pando {

/// How a long sum is cut: `count` chunks of `length` terms each (the last may be shorter), which
/// depends on the sizes alone, so that results depend on nothing else.
struct ReduceChunks {
  int64_t count;
  int64_t length;
};

/// Sums with many outputs are not cut: there is work enough for every thread. At most 128 chunks.
PANDO_HOST_DEVICE constexpr ReduceChunks CutReduction(int64_t outputs, int64_t reduced) {
  constexpr int64_t kManyOutputs = 4096;
  constexpr int64_t kMinTerms = 131072;  // in all outputs of a chunk together
  constexpr int64_t kMaxChunks = 128;
  if (outputs <= 0 || outputs >= kManyOutputs || reduced <= 1) return {1, reduced};
  int64_t length = kMinTerms / outputs;
  if (length * kMaxChunks < reduced) length = (reduced + kMaxChunks - 1) / kMaxChunks;
  return {(reduced + length - 1) / length, length};
}

/// Doubles of scratch for a sum with `outputs` results of `reduced` terms each; often none, never
/// more than 4 MiB.
constexpr int64_t SumScratch(int64_t outputs, int64_t reduced) {
  const ReduceChunks chunks = CutReduction(outputs, reduced);
  return chunks.count > 1 ? chunks.count * outputs : 0;
}

/// Whether rows of outputs make the better inner loop of a reduction than rows of what is reduced:
/// being longer, or else (by operand 0) closer in memory.
template <int N>
PANDO_HOST_DEVICE inline bool AcrossRows(const ReduceIndex<N>& index) {
  constexpr int64_t kShort = 16;
  const int64_t k = index.kept.rank - 1;
  const int64_t r = index.reduced.rank - 1;
  if (index.kept.size[k] < kShort || index.reduced.size[r] < kShort) {
    return index.kept.size[k] >= index.reduced.size[r];
  }
  return index.kept.stride[0][k] <= index.reduced.stride[0][r];
}

/// Where sums go: y = sum / divisor, or y += sum / divisor. Terms are added in f32 (f64 for f64) in
/// runs of at most 256 and those sums in f64, so that the error does not grow with the length;
/// one rounding to y. A sum of nothing is 0.
struct SumOutput {
  void* y;      ///< contiguous, in the row-major order of the kept dimensions
  DType dtype;  ///< any floating: f32 for gradients of parameters
  bool accumulate;
  double divisor;   ///< 1 for a sum, the number of terms for a mean
  double* scratch;  ///< SumScratch(outputs, reduced) doubles; null if that is 0
};

/// Sum or mean of x over the reduced dimensions. x is of `dtype`: f32, bf16, f16, f64.
struct SumArgs {
  DType dtype;
  const void* x;
  ReduceIndex<1> index;
  SumOutput output;
};

/// y = maximum of x over the reduced dimensions, and `arg` (unless null) where the first maximum
/// lies: its row-major index within the reduced dimensions. NaN counts as greater than anything. x
/// and y are of `dtype`: f32, bf16, f16, f64. Over nothing: -infinity and 0.
struct MaxArgs {
  DType dtype;
  const void* x;
  void* y;
  int64_t* arg;
  ReduceIndex<1> index;
};

/// dx += dy at the element that was the maximum, and nothing elsewhere: the caller has filled dx
/// with zeros or with the gradient so far. `index` and `arg` as in MaxArgs, which has at least one
/// term in each maximum. dy is of `dtype`, dx of the same or f32.
struct MaxBackwardArgs {
  DType dtype;
  const void* dy;
  const int64_t* arg;
  void* dx;
  DType dx_dtype;
  ReduceIndex<1> index;
};

/// What each device supplies.
struct ReduceKernels {
  Kernel<SumArgs> sum;
  Kernel<MaxArgs> max;
  Kernel<MaxBackwardArgs> max_backward;
};

}  // namespace pando
