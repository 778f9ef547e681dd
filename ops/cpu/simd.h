#pragma once

// Vectors of the level for which this file is compiled (GCC's vector extensions, which clang reads
// too), and two things that loops over plain arrays do not become by themselves: a register-blocked
// matrix product of small tiles, and a transposition. For kernel sources only: everything lies in
// PANDO_ISA, so each level has its own.

#include <stdint.h>

namespace pando::PANDO_ISA {

#if defined(__AVX512F__)
inline constexpr int64_t kVectorBytes = 64;
inline constexpr int kTileColumns = 4;  // vectors; 6 x 4 accumulators of 32 registers
#elif defined(__AVX2__)
inline constexpr int64_t kVectorBytes = 32;
inline constexpr int kTileColumns = 2;  // 6 x 2 of 16
#else
inline constexpr int64_t kVectorBytes = 16;
inline constexpr int kTileColumns = 2;
#endif
inline constexpr int kTileRows = 6;

/// Lanes of a vector of C (float or double).
template <typename C>
inline constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(C));

template <typename C>
struct VectorOf {
  typedef C type __attribute__((vector_size(kVectorBytes)));  // NOLINT: `using` drops the attribute
};

/// A vector of kLanes<C> values.
template <typename C>
using Vector = typename VectorOf<C>::type;

/// Loads from an address that is a multiple of kVectorBytes.
template <typename C>
inline Vector<C> Load(const C* p) {
  Vector<C> v;
  __builtin_memcpy(&v, __builtin_assume_aligned(p, kVectorBytes), sizeof(v));
  return v;
}

/// Stores to an address that is a multiple of kVectorBytes.
template <typename C>
inline void Store(C* p, Vector<C> v) {
  __builtin_memcpy(__builtin_assume_aligned(p, kVectorBytes), &v, sizeof(v));
}

/// The smallest multiple of `unit` that is not below n.
constexpr int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/// What TileProduct does with what C held before.
enum class Into {
  kOverwrite,
  kAdd,
  kScaleAdd,  ///< C(m, n) * scale[n] + ...: the running softmax rescales its sums so
};

/// How a tile's left factor lies: A(m, k) at a[m * lda + k], or at a[k * lda + m].
enum class Left { kByRow, kByColumn };

/// Arguments of one tile product: C[m][n] (+)= sum over k of A(m, k) B[k][n]. B and C lie by row,
/// aligned, with n, ldb and ldc multiples of a vector; A's elements are broadcast.
template <typename C>
struct Tile {
  int64_t m, n, k;
  const C* a;
  int64_t lda;
  const C* b;
  int64_t ldb;
  C* c;
  int64_t ldc;
  Into into = Into::kOverwrite;
  const C* scale = nullptr;
};

template <typename C, int kM, int kN, Left kLeft>
inline void RegisterBlock(const Tile<C>& t, int64_t m0, int64_t n0) {
  constexpr int64_t kW = kLanes<C>;
  Vector<C> acc[kM][kN] = {};
  C* const c = t.c + m0 * t.ldc + n0;
  if (t.into != Into::kOverwrite) {
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) {
        acc[m][n] = Load(c + m * t.ldc + n * kW);
        if (t.into == Into::kScaleAdd) acc[m][n] *= Load(t.scale + n0 + n * kW);
      }
    }
  }
  const int64_t lda = t.lda;
  const int64_t ldb = t.ldb;
  const C* a = kLeft == Left::kByRow ? t.a + m0 * lda : t.a + m0;
  const C* b = t.b + n0;
  for (int64_t k = t.k; k > 0; --k) {
    Vector<C> row[kN];
#pragma GCC unroll 16
    for (int n = 0; n < kN; ++n) row[n] = Load(b + n * kW);
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
      const C left = kLeft == Left::kByRow ? a[m * lda] : a[m];
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) acc[m][n] += left * row[n];
    }
    a += kLeft == Left::kByRow ? 1 : lda;
    b += ldb;
  }
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 16
    for (int n = 0; n < kN; ++n) Store(c + m * t.ldc + n * kW, acc[m][n]);
  }
}

/// The rows of a tile from m on, for the kN vectors of columns that start at n0: kM at a time, then
/// what is left in smaller blocks.
template <typename C, int kM, int kN, Left kLeft>
void ColumnBlock(const Tile<C>& t, int64_t m, int64_t n0) {
  for (; m + kM <= t.m; m += kM) RegisterBlock<C, kM, kN, kLeft>(t, m, n0);
  if constexpr (kM > 1) {
    constexpr int kSmaller = kM > 6 ? 6 : (kM > 4 ? 4 : kM / 2);
    if (m < t.m) ColumnBlock<C, kSmaller, kN, kLeft>(t, m, n0);
  }
}

/// The product of tiles that fit the first-level cache.
template <Left kLeft, typename C>
void TileProduct(const Tile<C>& t) {
  constexpr int64_t kW = kLanes<C>;
  int64_t n = 0;
  for (; n + kTileColumns * kW <= t.n; n += kTileColumns * kW) {
    ColumnBlock<C, kTileRows, kTileColumns, kLeft>(t, 0, n);
  }
  if constexpr (kTileColumns > 2) {
    if (t.n - n >= 2 * kW) {
      ColumnBlock<C, kTileRows, 2, kLeft>(t, 0, n);
      n += 2 * kW;
    }
  }
  // A single column needs more rows, for as many independent sums as hide a multiply-add's latency.
  if (t.n - n >= kW) ColumnBlock<C, 2 * kTileRows, 1, kLeft>(t, 0, n);
}

/// Lane numbers 0 .. n - 1 as a parameter pack.
template <int... kLane>
struct LaneList {};
template <int n, int... kLane>
struct MakeLaneList : MakeLaneList<n - 1, n - 1, kLane...> {};
template <int... kLane>
struct MakeLaneList<0, kLane...> {
  using type = LaneList<kLane...>;
};

/// One stage of a transposition: rows r and r + kHalf exchange the off-diagonal blocks of kHalf.
template <int kHalf, typename V, int... kLane>
inline void ExchangeBlocks(V& upper, V& lower, LaneList<kLane...> /*lanes*/) {
  constexpr int kW = sizeof...(kLane);
  const V u = upper;
  const V l = lower;
  upper = __builtin_shufflevector(u, l, ((kLane & kHalf) == 0 ? kLane : kW + kLane - kHalf)...);
  lower = __builtin_shufflevector(u, l, ((kLane & kHalf) == 0 ? kLane + kHalf : kW + kLane)...);
}

template <int kHalf, typename C>
inline void TransposeStage(Vector<C>* rows) {
  constexpr int kW = kLanes<C>;
  if constexpr (kHalf < kW) {
#pragma GCC unroll 16
    for (int r = 0; r < kW; ++r) {
      if ((r & kHalf) == 0) {
        ExchangeBlocks<kHalf>(rows[r], rows[r + kHalf], typename MakeLaneList<kW>::type());
      }
    }
    TransposeStage<2 * kHalf, C>(rows);
  }
}

/// to[n][m] = from[m][n]; m, n and the leading dimensions are multiples of a vector.
template <typename C>
void Transpose(int64_t m, int64_t n, const C* from, int64_t ld_from, C* to, int64_t ld_to) {
  constexpr int kW = kLanes<C>;
  for (int64_t i = 0; i < m; i += kW) {
    for (int64_t j = 0; j < n; j += kW) {
      Vector<C> rows[kW];
#pragma GCC unroll 16
      for (int r = 0; r < kW; ++r) rows[r] = Load(from + (i + r) * ld_from + j);
      TransposeStage<1, C>(rows);
#pragma GCC unroll 16
      for (int r = 0; r < kW; ++r) Store(to + (j + r) * ld_to + i, rows[r]);
    }
  }
}

}  // namespace pando::PANDO_ISA
