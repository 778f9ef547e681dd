#pragma once

// Sums of computed terms over dimensions: the engine under sum, mean and every backward that has to
// undo a broadcast. The order of additions depends on sizes and strides alone.

#include "ops/cpu/rows.h"
#include "ops/kernels/reduce.h"

namespace pando::PANDO_ISA {

// A reference to a callable that yields n <= kPiece terms of type C: of operand k they lie
// stride[k] apart from offset[k] on. It returns them in `buffer` or wherever they already are. By
// pointer, so that the engine is compiled once per number of operands and not for every operation.
template <int N, typename C>
class Terms {
 public:
  template <typename F>
  Terms(const F& f)  // NOLINT: implicit on purpose
      : object_(&f),
        call_([](const void* o, const int64_t* offset, const int64_t* stride, int64_t n,
                 C* buffer) { return (*static_cast<const F*>(o))(offset, stride, n, buffer); }) {}
  const C* operator()(const int64_t* offset, const int64_t* stride, int64_t n, C* buffer) const {
    return call_(object_, offset, stride, n, buffer);
  }

 private:
  const void* object_;
  const C* (*call_)(const void*, const int64_t*, const int64_t*, int64_t, C*);
};

struct Interval {
  int64_t begin;
  int64_t end;
};

template <int N>
struct RowStrides {
  explicit RowStrides(const StridedIndex<N>& index) {
    for (int k = 0; k < N; ++k) stride[k] = RowStride(index, k);
  }
  int64_t stride[N];
};

// Stores, or adds, outputs [begin, begin + n); `sum` is divided in place.
template <typename Y>
void StoreSums(const SumOutput& out, int64_t begin, double* sum, int64_t n) {
  using C = ComputeType<Y>;
  Y* y = static_cast<Y*>(out.y) + begin;
  if (out.divisor != 1) {
    for (int64_t j = 0; j < n; ++j) sum[j] /= out.divisor;
  }
  if (out.accumulate) {
    for (int64_t j = 0; j < n; ++j) sum[j] += static_cast<double>(ToFloat(y[j]));
  }
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) y[j] = RoundTo<Y>(static_cast<C>(sum[j]));
}

inline void StoreSums(const SumOutput& out, int64_t begin, double* sum, int64_t n) {
  DispatchFloating("sum", out.dtype,
                   [&](auto tag) { StoreSums<decltype(tag)>(out, begin, sum, n); });
}

// In C for runs that are short enough however many lanes the compiler gives them, beyond in f64.
template <typename C>
double SumOfRow(const C* v, int64_t n) {
  constexpr int64_t kRun = 256;
  double sum = 0;
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t stop = i + kRun < n ? i + kRun : n;
    C part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t j = i; j < stop; ++j) part += v[j];
    sum += static_cast<double>(part);
  }
  return sum;
}

// One output after another, each along rows of the reduced dimensions.
template <int N, typename C, typename Emit>
void SumAlongRows(const ReduceIndex<N>& index, Terms<N, C> terms, Interval outputs,
                  Interval reduced, const Emit& emit) {
  const RowStrides<N> kept_row(index.kept);
  const RowStrides<N> row(index.reduced);
  ForPieces(index.kept, outputs.begin, outputs.end,
            [&](int64_t first, const int64_t* kept, int64_t n) {
              double sum[kPiece];
              for (int64_t j = 0; j < n; ++j) {
                double total = 0;
                ForPieces(index.reduced, reduced.begin, reduced.end,
                          [&](int64_t, const int64_t* offset, int64_t m) {
                            int64_t at[N];
                            for (int k = 0; k < N; ++k) {
                              at[k] = kept[k] + j * kept_row.stride[k] + offset[k];
                            }
                            C buffer[kPiece];
                            const C* v = terms(at, row.stride, m, buffer);
                            total += SumOfRow(v, m);
                          });
                sum[j] = total;
              }
              emit(first, static_cast<double*>(sum), n);
            });
}

// A row of outputs at once: for each reduced element in turn, a row of terms is added to it.
template <int N, typename C, typename Emit>
void SumAcrossRows(const ReduceIndex<N>& index, Terms<N, C> terms, Interval outputs,
                   Interval reduced, const Emit& emit) {
  constexpr int64_t kRun = 64;  // terms added in C before their sum is added in f64
  const RowStrides<N> kept_row(index.kept);
  const RowStrides<N> row(index.reduced);
  ForPieces(index.kept, outputs.begin, outputs.end,
            [&](int64_t first, const int64_t* kept, int64_t n) {
              double sum[kPiece];
              for (int64_t j = 0; j < n; ++j) sum[j] = 0;
              for (int64_t r = reduced.begin; r < reduced.end; r += kRun) {
                C part[kPiece];
                for (int64_t j = 0; j < n; ++j) part[j] = 0;
                const int64_t stop = r + kRun < reduced.end ? r + kRun : reduced.end;
                ForPieces(index.reduced, r, stop, [&](int64_t, const int64_t* offset, int64_t m) {
                  for (int64_t i = 0; i < m; ++i) {
                    int64_t at[N];
                    for (int k = 0; k < N; ++k) at[k] = kept[k] + offset[k] + i * row.stride[k];
                    C buffer[kPiece];
                    const C* v = terms(at, kept_row.stride, n, buffer);
                    for (int64_t j = 0; j < n; ++j) part[j] += v[j];
                  }
                });
                for (int64_t j = 0; j < n; ++j) sum[j] += static_cast<double>(part[j]);
              }
              emit(first, static_cast<double*>(sum), n);
            });
}

// One term for each output: nothing to add up.
template <int N, typename C, typename Emit>
void TakeTerms(const ReduceIndex<N>& index, Terms<N, C> terms, Interval outputs, const Emit& emit) {
  const RowStrides<N> kept_row(index.kept);
  ForPieces(index.kept, outputs.begin, outputs.end,
            [&](int64_t first, const int64_t* kept, int64_t n) {
              C buffer[kPiece];
              double sum[kPiece];
              const C* v = terms(kept, kept_row.stride, n, buffer);
              for (int64_t j = 0; j < n; ++j) sum[j] = static_cast<double>(v[j]);
              emit(first, static_cast<double*>(sum), n);
            });
}

// out = the sums over index.reduced of `terms`, for every element of index.kept.
template <int N, typename C>
void SumTerms(const ReduceIndex<N>& index, Terms<N, C> terms, const SumOutput& out) {
  const int64_t outputs = Count(index.kept);
  const int64_t reduced = Count(index.reduced);
  if (outputs == 0) return;
  const ReduceChunks chunks = CutReduction(outputs, reduced);
  const bool across = AcrossRows(index);
  const int64_t least = across ? kPiece : 64;  // outputs per task
  const int64_t grain = chunks.length * least < kGrain ? kGrain / (chunks.length + 1) + 1 : least;
  const int64_t tiles = (outputs + grain - 1) / grain;
  ParallelFor(chunks.count * tiles, 1, [&](int64_t unit, int64_t) {
    const int64_t chunk = unit / tiles;
    const int64_t first = unit % tiles * grain;
    const Interval o = {first, first + grain < outputs ? first + grain : outputs};
    const int64_t start = chunk * chunks.length;
    const Interval r = {start, start + chunks.length < reduced ? start + chunks.length : reduced};
    const auto emit = [&](int64_t begin, double* sum, int64_t n) {
      if (chunks.count == 1) return StoreSums(out, begin, sum, n);
      double* scratch = out.scratch + chunk * outputs + begin;
      for (int64_t j = 0; j < n; ++j) scratch[j] = sum[j];
    };
    if (reduced == 1) {
      TakeTerms(index, terms, o, emit);
    } else if (across) {
      SumAcrossRows(index, terms, o, r, emit);
    } else {
      SumAlongRows(index, terms, o, r, emit);
    }
  });
  if (chunks.count == 1) return;
  ParallelFor(outputs, kPiece, [&](int64_t begin, int64_t end) {
    double sum[kPiece] = {};
    for (int64_t c = 0; c < chunks.count; ++c) {
      const double* scratch = out.scratch + c * outputs + begin;
      for (int64_t j = 0; j < end - begin; ++j) sum[j] += scratch[j];
    }
    StoreSums(out, begin, sum, end - begin);
  });
}

}  // namespace pando::PANDO_ISA
