#pragma once

// Rows of a matrix that a warp or a block works on together: short rows take a warp, so that there
// are no barriers; longer ones a block; both are kept in registers, so that memory is read once.
// Rows beyond that, and those that can't be loaded wide, are read anew (from a cache, mostly) for
// each pass over them.

#include <algorithm>
#include <type_traits>

#include "engine/cuda/block.h"
#include "engine/cuda/launch.h"
#include "engine/types.h"

namespace pando {

/// Most threads of a block, and two such blocks to a multiprocessor: so 64 registers a thread.
inline constexpr int kRowThreads = 512;
/// Threads of a block in which every warp has a row of its own.
inline constexpr int kWarpRowThreads = 128;

/// Packs of 16 bytes that it takes for `cols` elements of T.
template <typename T>
PANDO_HOST_DEVICE inline int64_t PacksFor(int64_t cols) {
  return (cols + kPackWidth<T> - 1) / kPackWidth<T>;
}

/// `n` rounded up to whole warps.
inline int64_t WholeWarps(int64_t n) { return (n + kWarpSize - 1) / kWarpSize * kWarpSize; }

/// Who works on a row.
enum class RowTeam {
  kWarp,    ///< a warp, the row in registers
  kBlock,   ///< a block, the row in registers
  kStream,  ///< a block that reads the row anew for each pass
};

/// One row, as the threads of its team see it: in steps, in each of which a thread has at most one
/// Pack. kHeld is the number of Packs that a thread keeps.
template <typename T, bool kWide, RowTeam kTeam, int kHeld>
class Row {
 public:
  static constexpr int kW = kPackWidth<T>;
  using Elements = Pack<T, kW>;

  /// The first row of this team, and how far it is to its next.
  static __device__ int64_t First() {
    return kTeam == RowTeam::kWarp ? GridThread() / kWarpSize : static_cast<int64_t>(blockIdx.x);
  }
  static __device__ int64_t Step() {
    return kTeam == RowTeam::kWarp ? GridThreads() / kWarpSize : static_cast<int64_t>(gridDim.x);
  }
  /// Whether this thread writes what there is one of to a row.
  static __device__ bool Leads() { return Member() == 0; }

  /// op over the team's threads, in each of them. All must take part.
  template <typename Op>
  static __device__ float Reduce(Op op, float x) {
    if constexpr (kTeam == RowTeam::kWarp) {
      return WarpReduce(op, x);
    } else {
      return BlockReduce(op, x, SharedMemory<float>());
    }
  }

  /// Begins with the row of `cols` elements at `p`.
  __device__ Row(const T* p, int64_t cols) : p_(p), cols_(cols) {
    if constexpr (kTeam != RowTeam::kStream) {
      PANDO_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        if (Has(k)) held_[k] = Read(p_, k);
      }
    }
  }

  /// Adds the row at `other`, rounding to T, and writes the sum to `sum`, which may be either.
  __device__ void AddAndStore(const T* other, T* sum) {
    if constexpr (kTeam != RowTeam::kStream) {
      PANDO_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        if (Has(k)) Add(Read(other, k), &held_[k]);
      }
      PANDO_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        if (Has(k)) Write(sum, k, held_[k]);
      }
    } else {
      for (int k = 0; k < Steps(); ++k) {
        if (!Has(k)) break;
        Elements x = Read(p_, k);
        Add(Read(other, k), &x);
        Write(sum, k, x);
      }
      p_ = sum;  // each thread reads again what it wrote itself
    }
  }

  /// Steps, in some of the last of which a thread may have nothing.
  __device__ int Steps() const {
    if constexpr (kTeam != RowTeam::kStream) return kHeld;
    return static_cast<int>((PacksFor<T>(cols_) + Threads() - 1) / Threads());
  }
  /// Whether this thread has elements in step k; if not, then neither in later steps.
  __device__ bool Has(int k) const { return Column(k) < cols_; }
  /// The first of them, and their number, of the kW of a Pack.
  __device__ int64_t Column(int k) const {
    return (Member() + static_cast<int64_t>(k) * Threads()) * kW;
  }
  __device__ int Count(int k) const {
    if (kWide) return kW;
    const int64_t left = cols_ - Column(k);
    return left < kW ? static_cast<int>(left) : kW;
  }
  __device__ Elements Get(int k) const {
    if constexpr (kTeam != RowTeam::kStream) return held_[k];
    return Read(p_, k);
  }
  /// This thread's elements of step k in another row, or in a vector, of as many columns.
  __device__ Elements Read(const T* p, int k) const {
    return LoadPack<kWide, kW>(p + Column(k), Count(k));
  }
  __device__ void Write(T* p, int k, const Elements& x) const {
    StorePack<kWide, kW>(p + Column(k), Count(k), x);
  }

 private:
  static __device__ int64_t Member() {
    return kTeam == RowTeam::kWarp ? threadIdx.x % kWarpSize : threadIdx.x;
  }
  static __device__ int64_t Threads() {
    return kTeam == RowTeam::kWarp ? kWarpSize : static_cast<int64_t>(blockDim.x);
  }
  static __device__ void Add(const Elements& other, Elements* x) {
    for (int j = 0; j < kW; ++j) {
      x->v[j] = RoundTo<T>(ToFloat(x->v[j]) + ToFloat(other.v[j]));
    }
  }

  const T* p_;
  int64_t cols_;
  Elements held_[kTeam == RowTeam::kStream ? 1 : kHeld];
};

/// A launch of a kernel on rows: one team to a row as long as the grid allows.
struct RowLaunch {
  bool wide;
  RowTeam team;
  unsigned blocks;
  unsigned threads;
  int64_t shared_bytes;
};

/// For `rows` of `cols` elements of T, of which a thread can hold kHeld Packs. `aligned` says that
/// all data are aligned to 16 bytes.
template <typename T, int kHeld>
RowLaunch LaunchForRows(int64_t rows, int64_t cols, bool aligned) {
  const bool wide = aligned && cols % kPackWidth<T> == 0;
  const int64_t packs = PacksFor<T>(cols);
  if (wide && packs <= int64_t{kHeld} * kWarpSize) {
    return {true, RowTeam::kWarp, GridFor(rows, kWarpRowThreads / kWarpSize), kWarpRowThreads, 0};
  }
  // Half of what the threads could hold: more of them, with more loads under way.
  const int64_t threads =
      std::min<int64_t>(WholeWarps((packs + kHeld / 2 - 1) / (kHeld / 2)), kRowThreads);
  const bool held = wide && packs <= kHeld * threads;
  return {wide, held ? RowTeam::kBlock : RowTeam::kStream, GridFor(rows, 1),
          static_cast<unsigned>(threads), kWarpSize * static_cast<int64_t>(sizeof(float))};
}

/// Calls body(std::bool_constant of wide, std::integral_constant of team) for what LaunchForRows
/// chose.
template <typename Body>
void DispatchRows(const RowLaunch& launch, const Body& body) {
  using std::bool_constant, std::integral_constant;
  using Wide = bool_constant<true>;
  using Warp = integral_constant<RowTeam, RowTeam::kWarp>;
  using Block = integral_constant<RowTeam, RowTeam::kBlock>;
  using Stream = integral_constant<RowTeam, RowTeam::kStream>;
  switch (launch.team) {
    case RowTeam::kWarp:
      return body(Wide{}, Warp{});
    case RowTeam::kBlock:
      return body(Wide{}, Block{});
    case RowTeam::kStream:
      return launch.wide ? body(Wide{}, Stream{}) : body(bool_constant<false>{}, Stream{});
  }
}

}  // namespace pando
