#include "ops/kernels/copy.h"

#include "ops/cpu/integer_cast.h"
#include "ops/cpu/rows.h"

namespace pando::PANDO_ISA {
namespace {

template <typename T>
void CopyRows(const CopyArgs& args) {
  const StridedIndex<2>& index = args.index;
  const int64_t y_stride = RowStride(index, 0);
  const int64_t x_stride = RowStride(index, 1);
  ParallelFor(Count(index), kGrain, [&](int64_t begin, int64_t end) {
    ForPieces(index, begin, end, [&](int64_t, const int64_t* offset, int64_t n) {
      T* __restrict y = static_cast<T*>(args.y) + offset[0];
      const T* __restrict x = static_cast<const T*>(args.x) + offset[1];
      if (y_stride == 1 && x_stride == 1) {
        for (int64_t i = 0; i < n; ++i) y[i] = x[i];
      } else {
        for (int64_t i = 0; i < n; ++i) y[i * y_stride] = x[i * x_stride];
      }
    });
  });
}

// A transpose: y is contiguous along the last dimension, x along another one.
struct Transpose {
  StridedIndex<2> outer;  // all dimensions but these two
  int64_t rows, cols;     // y[r * y_step + c] = x[c * x_step + r]
  int64_t y_step, x_step;
};

// Finds the dimension along which x is contiguous; returns whether `index` is a transpose.
bool AsTranspose(const StridedIndex<2>& index, Transpose* t) {
  const int64_t last = index.rank - 1;
  if (index.stride[0][last] != 1 || index.stride[1][last] <= 1) return false;
  int64_t d = 0;
  while (d < last && index.stride[1][d] != 1) ++d;
  if (d == last) return false;
  *t = {{1, {1}, {}}, index.size[d], index.size[last], index.stride[0][d], index.stride[1][last]};
  int64_t rank = 0;
  for (int64_t e = 0; e < last; ++e) {
    if (e == d) continue;
    t->outer.size[rank] = index.size[e];
    for (int k = 0; k < 2; ++k) t->outer.stride[k][rank] = index.stride[k][e];
    ++rank;
  }
  if (rank > 0) t->outer.rank = rank;
  return true;
}

// Elements of a tile in each direction: one or more whole cache lines of both x and y.
constexpr int64_t kTile = 32;

// 16 bytes of elements, on every level; and the halves of two, element by element in turn.
template <typename T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(16)));  // NOLINT: `using` loses the attribute
};
using Lanes16 = Lanes<uint16_t>::Vector;
using Lanes32 = Lanes<uint32_t>::Vector;
using Lanes64 = Lanes<uint64_t>::Vector;

Lanes16 LowHalves(Lanes16 a, Lanes16 b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
Lanes16 HighHalves(Lanes16 a, Lanes16 b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
Lanes32 LowHalves(Lanes32 a, Lanes32 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
Lanes32 HighHalves(Lanes32 a, Lanes32 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
Lanes64 LowHalves(Lanes64 a, Lanes64 b) { return __builtin_shufflevector(a, b, 0, 2); }
Lanes64 HighHalves(Lanes64 a, Lanes64 b) { return __builtin_shufflevector(a, b, 1, 3); }

// tile[r][c] = x[c * x_step + r] for a block as wide as a vector, in registers: a perfect shuffle
// of all the block's elements, done as often as the width can be halved, transposes it.
template <typename T>
PANDO_ALWAYS_INLINE void TransposeBlock(const T* x, int64_t x_step, T (*tile)[kTile]) {
  using V = typename Lanes<T>::Vector;
  constexpr int kWidth = 16 / sizeof(T);
  V v[kWidth];
  V w[kWidth];
#pragma GCC unroll 8
  for (int c = 0; c < kWidth; ++c) __builtin_memcpy(&v[c], x + c * x_step, 16);
#pragma GCC unroll 3
  for (int half = kWidth / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
    for (int i = 0; i < kWidth / 2; ++i) {
      w[2 * i] = LowHalves(v[i], v[i + kWidth / 2]);
      w[2 * i + 1] = HighHalves(v[i], v[i + kWidth / 2]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kWidth; ++i) v[i] = w[i];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kWidth; ++r) __builtin_memcpy(tile[r], &v[r], 16);
}

// y[r * y_step + c] = x[c * x_step + r]. Through a buffer, so that both x and y are touched along
// cache lines, whatever their steps.
template <typename T>
void TransposeTile(const T* x, int64_t x_step, T* y, int64_t y_step, int64_t rows, int64_t cols) {
  constexpr int64_t kWidth = 16 / sizeof(T);
  alignas(16) T tile[kTile][kTile];
  if (rows == kTile && cols == kTile) {
    for (int64_t c = 0; c < kTile; c += kWidth) {
      for (int64_t r = 0; r < kTile; r += kWidth) {
        T(*block)[kTile] = reinterpret_cast<T(*)[kTile]>(&tile[r][c]);
        TransposeBlock(x + c * x_step + r, x_step, block);
      }
    }
    for (int64_t r = 0; r < kTile; ++r) __builtin_memcpy(y + r * y_step, tile[r], sizeof(tile[r]));
    return;
  }
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) tile[r][c] = x[c * x_step + r];
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) y[r * y_step + c] = tile[r][c];
  }
}

template <typename T>
void CopyTransposed(const CopyArgs& args, const Transpose& t) {
  const int64_t row_tiles = (t.rows + kTile - 1) / kTile;
  const int64_t col_tiles = (t.cols + kTile - 1) / kTile;
  const int64_t tiles = row_tiles * col_tiles;
  ParallelFor(Count(t.outer) * tiles, kGrain / (kTile * kTile), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t r = unit % tiles / col_tiles * kTile;
      const int64_t c = unit % col_tiles * kTile;
      const int64_t rows = t.rows - r < kTile ? t.rows - r : kTile;
      const int64_t cols = t.cols - c < kTile ? t.cols - c : kTile;
      ForPieces(t.outer, unit / tiles, unit / tiles + 1,
                [&](int64_t, const int64_t* offset, int64_t) {
                  const T* x = static_cast<const T*>(args.x) + offset[1] + c * t.x_step + r;
                  T* y = static_cast<T*>(args.y) + offset[0] + r * t.y_step + c;
                  TransposeTile(x, t.x_step, y, t.y_step, rows, cols);
                });
    }
  });
}

void Copy(const CopyArgs& args, void* /*stream*/) {
  Transpose transpose;
  const bool transposed = AsTranspose(args.index, &transpose);
  DispatchSize(args.dtype, [&](auto tag) {
    if (transposed) {
      CopyTransposed<decltype(tag)>(args, transpose);
    } else {
      CopyRows<decltype(tag)>(args);
    }
  });
}

template <typename Y, typename X>
void AddIntoTyped(const AddIntoArgs& args) {
  using C = ComputeType<Y>;
  const StridedIndex<2>& index = args.index;
  const int64_t y_stride = RowStride(index, 0);
  ParallelFor(Count(index), kGrain, [&](int64_t begin, int64_t end) {
    ForPieces(index, begin, end, [&](int64_t, const int64_t* offset, int64_t n) {
      ComputeType<X> buffer[kPiece];
      const X* x = static_cast<const X*>(args.x) + offset[1];
      const ComputeType<X>* v = RowValues(x, RowStride(index, 1), n, buffer);
      Y* y = static_cast<Y*>(args.y) + offset[0];
      if (y_stride == 1) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) y[i] = RoundTo<Y>(ToFloat(y[i]) + C{v[i]});
      } else {
        for (int64_t i = 0; i < n; ++i) {
          Y& to = y[i * y_stride];
          to = RoundTo<Y>(ToFloat(to) + C{v[i]});
        }
      }
    });
  });
}

void AddInto(const AddIntoArgs& args, void* /*stream*/) {
  DispatchGradient("add_into", args.y_dtype, args.x_dtype, [&](auto y_tag, auto x_tag) {
    AddIntoTyped<decltype(y_tag), decltype(x_tag)>(args);
  });
}

}  // namespace

extern const CopyKernels kCopyKernels;
const CopyKernels kCopyKernels = {
    .copy = Copy,
    .add_into = AddInto,
    .integer_cast = IntegerCast,
};

}  // namespace pando::PANDO_ISA
