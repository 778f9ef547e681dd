#include "ops/kernels/reduce.h"

#include "ops/cpu/sum_terms.h"

namespace pando::PANDO_ISA {
namespace {

void Sum(const SumArgs& args, void* /*stream*/) {
  DispatchFloating("sum", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = ComputeType<T>;
    const T* x = static_cast<const T*>(args.x);
    const auto terms = [x](const int64_t* offset, const int64_t* stride, int64_t n, C* buffer) {
      return RowValues(x + offset[0], stride[0], n, buffer);
    };
    SumTerms<1, C>(args.index, terms, args.output);
  });
}

// A maximum so far and where it was met first.
template <typename C>
struct Best {
  C value;
  int64_t arg;
};

// Maximum of n values beginning with number `first`, and of `best`. NaN, once met, stays.
template <typename C>
Best<C> MaxOfRow(const C* v, int64_t n, int64_t first, Best<C> best) {
  if (best.value != best.value) return best;
  C greatest = best.value;
  int unordered = 0;
#pragma omp simd reduction(max : greatest) reduction(| : unordered)
  for (int64_t i = 0; i < n; ++i) {
    greatest = v[i] > greatest ? v[i] : greatest;
    unordered |= v[i] != v[i];
  }
  if (unordered != 0) {
    int64_t i = 0;
    while (v[i] == v[i]) ++i;
    return {v[i], first + i};
  }
  if (!(greatest > best.value)) return best;
  int64_t i = 0;
  while (v[i] != greatest) ++i;
  return {greatest, first + i};
}

template <typename T>
void MaxAlongRows(const MaxArgs& args, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const T* x = static_cast<const T*>(args.x);
  const int64_t kept_stride = RowStride(args.index.kept, 0);
  const int64_t stride = RowStride(args.index.reduced, 0);
  const int64_t reduced = Count(args.index.reduced);
  ForPieces(args.index.kept, begin, end, [&](int64_t first, const int64_t* kept, int64_t n) {
    for (int64_t j = 0; j < n; ++j) {
      Best<C> best = {static_cast<C>(-__builtin_inf()), 0};
      ForPieces(args.index.reduced, 0, reduced, [&](int64_t r, const int64_t* offset, int64_t m) {
        C buffer[kPiece];
        const T* row = x + kept[0] + j * kept_stride + offset[0];
        best = MaxOfRow(RowValues(row, stride, m, buffer), m, r, best);
      });
      static_cast<T*>(args.y)[first + j] = RoundTo<T>(best.value);
      if (args.arg != nullptr) args.arg[first + j] = best.arg;
    }
  });
}

template <typename T>
void MaxAcrossRows(const MaxArgs& args, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const T* x = static_cast<const T*>(args.x);
  const int64_t kept_stride = RowStride(args.index.kept, 0);
  const int64_t stride = RowStride(args.index.reduced, 0);
  const int64_t reduced = Count(args.index.reduced);
  ForPieces(args.index.kept, begin, end, [&](int64_t first, const int64_t* kept, int64_t n) {
    C value[kPiece];
    int64_t arg[kPiece];
    for (int64_t j = 0; j < n; ++j) {
      value[j] = static_cast<C>(-__builtin_inf());
      arg[j] = 0;
    }
    ForPieces(args.index.reduced, 0, reduced, [&](int64_t r, const int64_t* offset, int64_t m) {
      for (int64_t i = 0; i < m; ++i) {
        C buffer[kPiece];
        const C* v = RowValues(x + kept[0] + offset[0] + i * stride, kept_stride, n, buffer);
        for (int64_t j = 0; j < n; ++j) {
          const bool better = (v[j] > value[j]) | ((v[j] != v[j]) & (value[j] == value[j]));
          value[j] = better ? v[j] : value[j];
          arg[j] = better ? r + i : arg[j];
        }
      }
    });
    for (int64_t j = 0; j < n; ++j) {
      static_cast<T*>(args.y)[first + j] = RoundTo<T>(value[j]);
      if (args.arg != nullptr) args.arg[first + j] = arg[j];
    }
  });
}

void Max(const MaxArgs& args, void* /*stream*/) {
  const int64_t reduced = Count(args.index.reduced);
  const bool across = AcrossRows(args.index);
  DispatchFloating("max", args.dtype, [&](auto tag) {
    ParallelFor(Count(args.index.kept), kGrain / (reduced + 1) + 64,
                [&](int64_t begin, int64_t end) {
                  if (across) {
                    MaxAcrossRows<decltype(tag)>(args, begin, end);
                  } else {
                    MaxAlongRows<decltype(tag)>(args, begin, end);
                  }
                });
  });
}

// Offset of one element of a box.
int64_t OffsetOf(const StridedIndex<1>& index, int64_t element) {
  int64_t offset = 0;
  for (int64_t d = index.rank - 1; d >= 0; --d) {
    offset += element % index.size[d] * index.stride[0][d];
    element /= index.size[d];
  }
  return offset;
}

template <typename X, typename T>
void MaxBackwardTyped(const MaxBackwardArgs& args) {
  X* dx = static_cast<X*>(args.dx);
  const T* dy = static_cast<const T*>(args.dy);
  const int64_t stride = RowStride(args.index.kept, 0);
  ParallelFor(Count(args.index.kept), kGrain / 16, [&](int64_t begin, int64_t end) {
    ForPieces(args.index.kept, begin, end, [&](int64_t first, const int64_t* kept, int64_t n) {
      for (int64_t j = 0; j < n; ++j) {
        X& to = dx[kept[0] + j * stride + OffsetOf(args.index.reduced, args.arg[first + j])];
        to = RoundTo<X>(ToFloat(to) + ComputeType<X>{ToFloat(dy[first + j])});
      }
    });
  });
}

void MaxBackward(const MaxBackwardArgs& args, void* /*stream*/) {
  DispatchGradient("max backward", args.dx_dtype, args.dtype, [&](auto x_tag, auto y_tag) {
    MaxBackwardTyped<decltype(x_tag), decltype(y_tag)>(args);
  });
}

}  // namespace

extern const ReduceKernels kReduceKernels;
const ReduceKernels kReduceKernels = {
    .sum = Sum,
    .max = Max,
    .max_backward = MaxBackward,
};

}  // namespace pando::PANDO_ISA
