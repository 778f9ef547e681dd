#pragma once

// Sums of computed terms over dimensions: what is under sum, mean and every backward that has to
// undo a broadcast. Two forms: along rows (a warp or more per output, each thread a piece of what
// is reduced) and across them (each thread a piece of outputs). Which, and the order of additions,
// depends on sizes and strides alone.
//
// `Terms` is a struct that says what to add:
//   static constexpr int kOperands, kWidth;  using C = float or double;
//   static constexpr int kAtOnce;            pieces that a thread loads at once where it may
//   PieceGrid<kOperands> Cut(index) const;   pieces of kWidth
//   unsigned Reads() const;                  bit k: operand k is read
//   __device__ void Load(const TermPiece<kOperands>&, C (&terms)[kWidth]) const;

#include "ops/cuda/pieces.h"
#include "ops/cuda/sum_output.h"
#include "ops/kernels/reduce.h"

namespace pando {

/// A piece of terms: of operand k they lie stride[k] apart from at[k] on.
template <int N>
struct TermPiece {
  int64_t at[N];
  int64_t stride[N];
  int n;
  unsigned wide;  ///< bit k: kWidth elements of operand k can be loaded at once

  __device__ bool IsWide(int k) const { return (wide >> k & 1) != 0; }
};

/// What both forms are launched with.
template <int N>
struct SumPlan {
  PieceGrid<N> pieces;  ///< along: of what is reduced; across: of the outputs
  Box<N> other;         ///< the box that isn't cut
  int64_t outputs;
  int64_t reduced;    ///< terms of an output
  int64_t parts;      ///< of a sum
  int64_t part_size;  ///< along: pieces of a part; across: terms
  int lanes;          ///< along: warps per output; across: threads beside each other
  int64_t units;      ///< along: outputs; across: tiles of `lanes` pieces of them
  Divisor by_units;
  bool plain;        ///< everything read is wide, and what is reduced has one dimension
  bool wide_output;  ///< across: whole pieces of y are aligned
};

// Terms that one thread adds in C before their sum is added in f64.
inline constexpr int kTermsInRun = 64;
inline constexpr unsigned kAlongThreads = 512;

template <bool kPlain, int N>
__device__ inline TermPiece<N> TermsAt(const PieceGrid<N>& grid, const int64_t (&at)[N], int n) {
  TermPiece<N> piece;
  piece.n = kPlain ? static_cast<int>(grid.width) : n;
  piece.wide = kPlain ? ~0u : (n == grid.width ? grid.wide : 0u);
  for (int k = 0; k < N; ++k) {
    piece.at[k] = at[k];
    piece.stride[k] = PieceStride(grid, k);
  }
  return piece;
}

/// The sum of the first n terms.
template <int W, typename C>
__device__ inline C SumOfPiece(const C (&terms)[W], int n) {
  C sum = 0;
  for (int j = 0; j < W; ++j) sum += j < n ? terms[j] : C(0);
  return sum;
}

/// The sum of every `step`-th piece from i on and before `end`.
template <typename Terms, int N>
__device__ inline double SumPieces(const Terms& terms, const SumPlan<N>& plan,
                                   const int64_t (&kept)[N], int64_t i, int64_t end, int64_t step) {
  using C = typename Terms::C;
  constexpr int kW = Terms::kWidth;
  double sum = 0;
  while (i < end) {
    C part = 0;
    for (int left = kTermsInRun / kW; left > 0 && i < end; --left, i += step) {
      Piece<N> piece = PieceAt(plan.pieces, i);
      for (int k = 0; k < N; ++k) piece.at[k] += kept[k];
      C t[kW];
      terms.Load(TermsAt<false>(plan.pieces, piece.at, piece.n), t);
      part += SumOfPiece(t, piece.n);
    }
    sum += static_cast<double>(part);
  }
  return sum;
}

/// The same where the plan is plain and all pieces are whole, Terms::kAtOnce at a time; the last
/// few are left, from i on.
template <typename Terms, int N>
__device__ inline double SumPlainPieces(const Terms& terms, const SumPlan<N>& plan,
                                        const int64_t (&kept)[N], int64_t& i, int64_t end,
                                        int64_t step) {
  using C = typename Terms::C;
  constexpr int kW = Terms::kWidth;
  double sum = 0;
  for (; i + (Terms::kAtOnce - 1) * step < end; i += Terms::kAtOnce * step) {
    C t[Terms::kAtOnce][kW];
    for (int u = 0; u < Terms::kAtOnce; ++u) {
      int64_t at[N];
      for (int k = 0; k < N; ++k) {
        at[k] = kept[k] + (i + u * step) * kW * PieceStride(plan.pieces, k);
      }
      terms.Load(TermsAt<true>(plan.pieces, at, kW), t[u]);
    }
    C part = 0;
    for (int u = 0; u < Terms::kAtOnce; ++u) part += SumOfPiece(t[u], kW);
    sum += static_cast<double>(part);
  }
  return sum;
}

/// Units (part, output) of plan.lanes warps each.
template <typename Terms>
__global__ void __launch_bounds__(kAlongThreads, Terms::kOperands > 2 ? 1 : 2)
    SumAlong(Terms terms, SumPlan<Terms::kOperands> plan, SumOutput out) {
  constexpr int kN = Terms::kOperands;
  double* shared = SharedMemory<double>();  // one per warp
  const int warps = plan.lanes;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int thread = static_cast<int>(threadIdx.x) % (warps * kWarpSize);  // of those for an output
  const int64_t per_block = static_cast<int>(blockDim.x) / kWarpSize / warps;
  const int64_t units = plan.units * plan.parts;
  for (int64_t block = blockIdx.x; block * per_block < units; block += gridDim.x) {
    const int64_t unit = block * per_block + warp / warps;
    const int64_t part = Quotient(unit, plan.by_units);
    const int64_t output = unit - part * plan.units;
    double sum = 0;
    if (unit < units) {
      int64_t kept[kN] = {};
      AddOffsets(plan.other, output, kept);
      const int64_t last = (part + 1) * plan.part_size;
      const int64_t end = last < plan.pieces.count ? last : plan.pieces.count;
      const int64_t step = int64_t{warps} * kWarpSize;
      int64_t i = part * plan.part_size + thread;
      if (Terms::kAtOnce > 1 && plan.plain) {
        const int64_t whole = plan.reduced / Terms::kWidth;
        sum = SumPlainPieces(terms, plan, kept, i, whole < end ? whole : end, step);
      }
      sum += SumPieces(terms, plan, kept, i, end, step);
    }
    sum = WarpReduce(SumOp{}, sum);
    if (warps > 1) {
      if (thread % kWarpSize == 0) shared[warp] = sum;
      __syncthreads();
      if (thread == 0) {
        for (int w = 1; w < warps; ++w) sum += shared[warp + w];
      }
      __syncthreads();
    }
    if (thread != 0 || unit >= units) continue;
    if (plan.parts > 1) {
      out.scratch[unit] = sum;
    } else {
      const double total[1] = {sum};
      StoreSums(out, output, false, 1, total);
    }
  }
}

/// Where reduced element r of a piece of outputs at `kept` has its terms.
template <bool kPlain, int N>
__device__ inline TermPiece<N> AcrossAt(const SumPlan<N>& plan, const Piece<N>& kept, int64_t r) {
  int64_t at[N];
  for (int k = 0; k < N; ++k) {
    at[k] = kept.at[k] + (kPlain ? r * plan.other.index.stride[k][0] : 0);
  }
  if (!kPlain) AddOffsets(plan.other, r, at);
  return TermsAt<kPlain>(plan.pieces, at, kept.n);
}

/// Adds to sum[j * blockDim.x] the terms of output j, every `step`-th of those from r on and before
/// `end`. The sums in f64 stay in shared memory: registers would not suffice.
template <typename Terms, int N>
__device__ inline void AddAcross(const Terms& terms, const SumPlan<N>& plan, const Piece<N>& kept,
                                 int64_t r, int64_t end, int64_t step, double* sum) {
  using C = typename Terms::C;
  constexpr int kW = Terms::kWidth;
  while (r < end) {
    C part[kW] = {};
    for (int left = kTermsInRun; left > 0 && r < end; --left, r += step) {
      C t[kW];
      terms.Load(AcrossAt<false>(plan, kept, r), t);
      for (int j = 0; j < kW; ++j) part[j] += t[j];
    }
    for (int j = 0; j < kW; ++j) sum[Wide(j * blockDim.x)] += static_cast<double>(part[j]);
  }
}

/// The same where the plan is plain and the piece whole, Terms::kAtOnce at a time; the last few are
/// left, from r on.
template <typename Terms, int N>
__device__ inline void AddPlainAcross(const Terms& terms, const SumPlan<N>& plan,
                                      const Piece<N>& kept, int64_t& r, int64_t end, int64_t step,
                                      double* sum) {
  using C = typename Terms::C;
  constexpr int kW = Terms::kWidth;
  constexpr int kAtOnce = Terms::kAtOnce;
  while (r + (kAtOnce - 1) * step < end) {
    C part[kW] = {};
    for (int left = kTermsInRun; left > 0 && r + (kAtOnce - 1) * step < end; left -= kAtOnce) {
      C t[kAtOnce][kW];
      for (int u = 0; u < kAtOnce; ++u, r += step) {
        terms.Load(AcrossAt<true>(plan, kept, r), t[u]);
      }
      for (int u = 0; u < kAtOnce; ++u) {
        for (int j = 0; j < kW; ++j) part[j] += t[u][j];
      }
    }
    for (int j = 0; j < kW; ++j) sum[Wide(j * blockDim.x)] += static_cast<double>(part[j]);
  }
}

/// One term for each output: nothing to add up.
template <typename Terms>
__global__ void __launch_bounds__(kPieceThreads, 3)
    TakeTerms(Terms terms, SumPlan<Terms::kOperands> plan, SumOutput out) {
  constexpr int kN = Terms::kOperands;
  constexpr int kW = Terms::kWidth;
  for (int64_t i = GridThread(); i < plan.pieces.count; i += GridThreads()) {
    const Piece<kN> kept = PieceAt(plan.pieces, i);
    typename Terms::C t[kW];
    terms.Load(TermsAt<false>(plan.pieces, kept.at, kept.n), t);
    StoreSums(out, kept.first, plan.wide_output && kept.n == kW, kept.n, t);
  }
}

/// Tiles of plan.lanes pieces of outputs; blockDim.x / lanes groups of threads share the terms.
template <typename Terms>
__global__ void __launch_bounds__(kPieceThreads, 3)
    SumAcross(Terms terms, SumPlan<Terms::kOperands> plan, SumOutput out) {
  constexpr int kN = Terms::kOperands;
  constexpr int kW = Terms::kWidth;
  double* shared = SharedMemory<double>();  // [kW][blockDim.x]
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int groups = threads / plan.lanes;
  for (int64_t unit = blockIdx.x; unit < plan.units * plan.parts; unit += gridDim.x) {
    const int64_t part = Quotient(unit, plan.by_units);
    const int64_t tile = (unit - part * plan.units) * plan.lanes;
    const int64_t i = tile + thread % plan.lanes;
    double* sum = shared + thread;
    for (int j = 0; j < kW; ++j) sum[Wide(j * threads)] = 0;
    if (i < plan.pieces.count) {
      const Piece<kN> kept = PieceAt(plan.pieces, i);
      const int64_t last = (part + 1) * plan.part_size;
      const int64_t end = last < plan.reduced ? last : plan.reduced;
      int64_t r = part * plan.part_size + thread / plan.lanes;
      if (Terms::kAtOnce > 1 && plan.plain && kept.n == kW) {
        AddPlainAcross(terms, plan, kept, r, end, groups, sum);
      }
      AddAcross(terms, plan, kept, r, end, groups, sum);
    }
    __syncthreads();
    // From here on a thread has an output, neighbours neighbouring ones.
    for (int c = thread; c < kW * plan.lanes; c += threads) {
      const int lane = c / kW;
      const int j = c % kW;
      if (tile + lane >= plan.pieces.count) break;
      const Piece<kN> kept = PieceAt(plan.pieces, tile + lane);
      if (j >= kept.n) continue;
      double total[1] = {};
      for (int g = 0; g < groups; ++g) total[0] += shared[j * threads + g * plan.lanes + lane];
      if (plan.parts > 1) {
        out.scratch[part * plan.outputs + kept.first + j] = total[0];
      } else {
        StoreSums(out, kept.first + j, false, 1, total);
      }
    }
    __syncthreads();
  }
}

/// Pieces of the box `cut`; for each of them all of the box `other` is walked.
template <typename Terms, int N>
SumPlan<N> PlanSums(const Terms& terms, const StridedIndex<N>& cut, const StridedIndex<N>& other) {
  SumPlan<N> plan = {};
  plan.pieces = terms.Cut(cut);
  plan.other = MakeBox(other);
  for (int k = 0; k < N; ++k) {
    if (!StridesDivide(other, k, other.rank, Terms::kWidth)) plan.pieces.wide &= ~(1u << k);
  }
  return plan;
}

/// out = the sums over index.reduced of `terms`, for every element of index.kept. Throws
/// InvalidArgument, naming `op`, if out is not floating.
template <typename Terms>
void SumTerms(const char* op, const Terms& terms, const ReduceIndex<Terms::kOperands>& index,
              const SumOutput& out, void* stream) {
  if (!IsFloating(out.dtype)) ThrowUnsupportedOnCuda(op, out.dtype);
  const int64_t outputs = Count(index.kept);
  const int64_t reduced = Count(index.reduced);
  if (outputs == 0) return;
  const bool across = reduced <= 1 || AcrossRows(index);
  auto plan = across ? PlanSums(terms, index.kept, index.reduced)
                     : PlanSums(terms, index.reduced, index.kept);
  plan.outputs = outputs;
  plan.reduced = reduced;
  plan.plain = (plan.pieces.wide & terms.Reads()) == terms.Reads() && index.reduced.rank == 1;
  plan.wide_output = IsWideResult(plan.pieces, out.y);
  if (reduced == 1 && out.divisor == 1) {
    Launch(TakeTerms<Terms>, PieceBlocks(plan.pieces.count), kPieceThreads, 0, stream, terms, plan,
           out);
    return;
  }
  const Shares shares =
      across ? ShareAcross(CutReduction(outputs, reduced), plan.pieces.count)
             : ShareAlong(CutReduction(outputs, reduced), plan.pieces.count, outputs);
  plan.parts = shares.parts;
  plan.part_size = shares.part_size;
  plan.lanes = shares.lanes;
  plan.units = across ? (plan.pieces.count + plan.lanes - 1) / plan.lanes : outputs;
  plan.by_units = MakeDivisor(plan.units);
  if (across) {
    Launch(SumAcross<Terms>, GridFor(plan.units * plan.parts, 1), kPieceThreads,
           Terms::kWidth * kPieceThreads * sizeof(double), stream, terms, plan, out);
  } else {
    constexpr int kWarps = kAlongThreads / kWarpSize;
    Launch(SumAlong<Terms>, GridFor(plan.units * plan.parts, kWarps / plan.lanes), kAlongThreads,
           kWarps * sizeof(double), stream, terms, plan, out);
  }
  if (plan.parts > 1) AddParts(out, outputs, plan.parts, stream);
}

}  // namespace pando
