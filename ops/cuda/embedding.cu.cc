#include "ops/kernels/embedding.h"

#include <algorithm>

#include "engine/cuda/block.h"
#include "engine/cuda/dispatch.h"
#include "ops/cuda/divisor.h"
#include "ops/cuda/tables.h"
#include "ops/cuda/token_sort.h"

namespace pando {
namespace {

constexpr int kThreads = 128;      // of blocks in which every warp works alone
constexpr int kLongThreads = 512;  // of blocks that share a sum

PANDO_HOST_DEVICE inline bool IsToken(int32_t token, int64_t vocab) {
  return token >= 0 && token < vocab;
}

__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }

// A warp to a token.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kThreads)
    EmbeddingForward(EmbeddingForwardArgs args, Divisor by_length) {
  constexpr int kW = kPackWidth<T>;
  const int64_t cols = args.cols;
  for (int64_t n = GridThread() / kWarpSize; n < args.count; n += GridThreads() / kWarpSize) {
    const int32_t token = args.tokens[n];
    const bool valid = IsToken(token, args.vocab);
    if (!valid && Lane() == 0) atomicOr(args.error, 1);
    const T* row = static_cast<const T*>(args.table) + (valid ? token * cols : 0);
    const T* position = nullptr;
    if (args.positions != nullptr) {
      const int64_t place = n - Quotient(n, by_length) * args.length + args.offset;
      position = static_cast<const T*>(args.positions) + place * cols;
    }
    T* out = static_cast<T*>(args.out) + n * cols;
    for (int64_t c = Lane() * int64_t{kW}; c < cols; c += int64_t{kWarpSize} * kW) {
      const int64_t left = kWide ? kW : cols - c;
      auto v = valid ? LoadPack<kWide, kW>(row + c, left) : Pack<T, kW>{};
      if (valid && position != nullptr) {
        const auto p = LoadPack<kWide, kW>(position + c, left);
        for (int j = 0; j < kW; ++j) v.v[j] = RoundTo<T>(ToFloat(v.v[j]) + ToFloat(p.v[j]));
      }
      StorePack<kWide, kW>(out + c, left, v);
    }
  }
}

void Forward(const EmbeddingForwardArgs& args, void* stream) {
  // Null is aligned.
  const bool aligned =
      IsWideAligned(args.table) && IsWideAligned(args.positions) && IsWideAligned(args.out);
  DispatchCuda<float, BFloat16, Float16>("embedding", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool wide = aligned && args.cols % kPackWidth<T> == 0;
    Launch(wide ? EmbeddingForward<T, true> : EmbeddingForward<T, false>,
           GridFor(args.count, kThreads / kWarpSize), kThreads, 0, stream, args,
           MakeDivisor(std::max<int64_t>(args.length, 1)));
  });
}

// Backward: which rows of dout a row of the table, or of the positions, is the sum of.

// The k-th token after sorting.
struct SortedRows {
  __device__ bool Counts(int64_t /*k*/) const { return true; }
  __device__ int64_t Row(int64_t k) const { return order[k]; }

  const int64_t* order;
};

// Tokens first, first + step, ..., those outside the vocabulary left out.
struct StridedRows {
  __device__ bool Counts(int64_t k) const { return IsToken(tokens[Row(k)], vocab); }
  __device__ int64_t Row(int64_t k) const { return first + k * step; }

  const int32_t* tokens;
  int64_t vocab;
  int64_t first;
  int64_t step;
};

// Columns [column, column + n) of dout's rows, this lane's; if kWide, n is 0 or kW.
template <typename T, bool kWide>
struct Columns {
  static constexpr int kW = kPackWidth<T>;

  // sum += rows [begin, end), one after the other; kBatch are loaded before the first is added.
  template <int kBatch, typename Rows>
  __device__ void Add(const Rows& rows, int64_t begin, int64_t end, float (&sum)[kW]) const {
    for (int64_t k = begin; k < end; k += kBatch) {
      Pack<T, kW> v[kBatch];
      bool counts[kBatch];
      PANDO_UNROLL
      for (int u = 0; u < kBatch; ++u) {
        counts[u] = k + u < end && rows.Counts(k + u);
        if (counts[u])
          v[u] = LoadPack<kWide, kW>(dout + rows.Row(k + u) * cols + column, kWide ? kW : n);
      }
      PANDO_UNROLL
      for (int u = 0; u < kBatch; ++u) {
        if (!counts[u]) continue;
        for (int j = 0; j < kW; ++j) sum[j] += ToFloat(v[u].v[j]);
      }
    }
  }
  __device__ void Load(const float* row, float (&sum)[kW]) const {
    for (int j = 0; j < kW; j += 4) {
      const auto part = LoadPack<kWide, 4>(row + column + j, kWide ? 4 : n - j);
      for (int i = 0; i < 4; ++i) sum[j + i] = part.v[i];
    }
  }
  __device__ void Store(float* row, const float (&sum)[kW]) const {
    for (int j = 0; j < kW; j += 4) {
      const Pack<float, 4> part = {{sum[j], sum[j + 1], sum[j + 2], sum[j + 3]}};
      StorePack<kWide, 4>(row + column + j, kWide ? 4 : n - j, part);
    }
  }

  const T* dout;
  int64_t cols;
  int64_t column;
  int n;
};

// The columns of this lane in tile `tile` of the row.
template <typename T, bool kWide>
__device__ Columns<T, kWide> ColumnsOf(const EmbeddingBackwardArgs& args, int64_t tile) {
  constexpr int kW = kPackWidth<T>;
  const int64_t column = (tile * kWarpSize + Lane()) * kW;
  const int64_t left = args.cols - column;
  const int n = left >= kW ? kW : static_cast<int>(left > 0 ? left : 0);
  return {static_cast<const T*>(args.dout), args.cols, n > 0 ? column : 0, n};
}

template <typename T>
PANDO_HOST_DEVICE int64_t ColumnTilesOf(int64_t cols) {
  constexpr int64_t kTile = kPackWidth<T> * int64_t{kWarpSize};
  return (cols + kTile - 1) / kTile;
}

// Adds rows [begin, end), in one tile of columns, to the row of sums at `out`, in order: a warp.
template <typename T, bool kWide, typename Rows>
__device__ void AddInOrder(const EmbeddingBackwardArgs& args, const Rows& rows, int64_t begin,
                           int64_t end, int64_t tile, float* out) {
  const auto columns = ColumnsOf<T, kWide>(args, tile);
  if (columns.n == 0) return;
  float sum[kPackWidth<T>];
  columns.Load(out, sum);
  columns.template Add<3>(rows, begin, end, sum);
  columns.Store(out, sum);
}

// The same for many rows by a block: each warp sums a share of the rows,
// and the shares are added in order.
template <typename T, bool kWide, typename Rows>
__device__ void AddInShares(const EmbeddingBackwardArgs& args, const Rows& rows, int64_t begin,
                            int64_t end, int64_t tile, float* out) {
  constexpr int kW = kPackWidth<T>;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int64_t share = (end - begin + warps - 1) / warps;
  const int64_t from = begin + warp * share;
  const int64_t to = from + share < end ? from + share : end;
  const auto columns = ColumnsOf<T, kWide>(args, tile);
  float sum[kW] = {};
  if (columns.n > 0) columns.template Add<4>(rows, from, to, sum);
  float* shared = SharedMemory<float>();
  for (int j = 0; j < kW; ++j) shared[(warp * kW + j) * kWarpSize + Lane()] = sum[j];
  __syncthreads();
  if (warp != 0 || columns.n == 0) return;
  columns.Load(out, sum);
  for (int w = 0; w < warps; ++w) {
    for (int j = 0; j < kW; ++j) sum[j] += shared[(w * kW + j) * kWarpSize + Lane()];
  }
  columns.Store(out, sum);
}

// Most rows that a warp adds alone. A lane to each of the next keys tells how many there are.
constexpr int64_t kShort = kWarpSize;

// Sorted keys, each run of equal ones the tokens of one row of the table.
struct Runs {
  __device__ bool Is(int64_t k, int32_t key) const { return k >= 0 && k < count && keys[k] == key; }

  const int32_t* keys;
  const int64_t* order;
  int64_t count;
};

// A warp to every position at which a run of at most kShort begins.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kThreads, 8) AddShortRuns(EmbeddingBackwardArgs args, Runs runs) {
  for (int64_t k = GridThread() / kWarpSize; k < runs.count; k += GridThreads() / kWarpSize) {
    const int32_t key = runs.keys[k];
    const bool begins = key < args.vocab && !runs.Is(k - 1, key);
    if (!begins || runs.Is(k + kShort, key)) continue;
    const int64_t length = __popc(__ballot_sync(kFullMask, runs.Is(k + Lane(), key)));
    float* out = static_cast<float*>(args.dtable) + key * args.cols;
    for (int64_t tile = 0; tile < ColumnTilesOf<T>(args.cols); ++tile) {
      AddInOrder<T, kWide>(args, SortedRows{runs.order}, k, k + length, tile, out);
    }
  }
}

// A block to every position that is a multiple of kShort and the first such in its run, if that has
// more than kShort.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kLongThreads, 2)
    AddLongRuns(EmbeddingBackwardArgs args, Runs runs, unsigned tiles) {
  const int64_t k = blockIdx.x / tiles * kShort;
  const int64_t tile = blockIdx.x % tiles;
  const int32_t key = runs.keys[k];
  if (key >= args.vocab || runs.Is(k - kShort, key)) return;
  const int64_t begin = k - __popc(__ballot_sync(kFullMask, runs.Is(k - 1 - Lane(), key)));
  if (!runs.Is(begin + kShort, key)) return;
  // The first position with a greater key: between `end`, which has this one, and `above`.
  int64_t end = begin + kShort;
  int64_t above = runs.count;
  while (above - end > 1) {
    const int64_t middle = end + (above - end) / 2;
    (runs.Is(middle, key) ? end : above) = middle;
  }
  AddInShares<T, kWide>(args, SortedRows{runs.order}, begin, above, tile,
                        static_cast<float*>(args.dtable) + key * args.cols);
}

__device__ inline StridedRows RowsOfPosition(const EmbeddingBackwardArgs& args, int64_t t) {
  return {args.tokens, args.vocab, t, args.length};
}

// How many sequences reach position t.
__device__ inline int64_t CountAt(const EmbeddingBackwardArgs& args, int64_t t) {
  return (args.count - t + args.length - 1) / args.length;
}

// A warp to every position and tile of columns.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kThreads, 8)
    AddPositions(EmbeddingBackwardArgs args, int64_t used, Divisor by_used) {
  const int64_t warp = GridThread() / kWarpSize;
  const int64_t tile = Quotient(warp, by_used);
  if (tile >= ColumnTilesOf<T>(args.cols)) return;
  const int64_t t = warp - tile * used;
  AddInOrder<T, kWide>(args, RowsOfPosition(args, t), 0, CountAt(args, t), tile,
                       static_cast<float*>(args.dpositions) + (t + args.offset) * args.cols);
}

// A block to every position and tile of columns, for many short sequences.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kLongThreads, 2)
    AddManyPositions(EmbeddingBackwardArgs args, unsigned tiles) {
  const int64_t t = blockIdx.x / tiles;
  AddInShares<T, kWide>(args, RowsOfPosition(args, t), 0, CountAt(args, t), blockIdx.x % tiles,
                        static_cast<float*>(args.dpositions) + (t + args.offset) * args.cols);
}

template <typename T, bool kWide>
struct BackwardLaunches {
  static constexpr int64_t kSharedBytes =
      static_cast<int64_t>(sizeof(float)) * kPackWidth<T> * kLongThreads;

  void Table() const {
    const SortedTokens sorted =
        SortTokens(args.tokens, args.count, args.vocab, args.scratch, stream);
    const Runs runs = {sorted.keys, sorted.order, args.count};
    Launch(AddShortRuns<T, kWide>, GridFor(args.count, kThreads / kWarpSize), kThreads, 0, stream,
           args, runs);
    Launch(AddLongRuns<T, kWide>, static_cast<unsigned>((args.count + kShort - 1) / kShort * tiles),
           kLongThreads, kSharedBytes, stream, args, runs, static_cast<unsigned>(tiles));
  }
  void Positions() const {
    const int64_t used = std::min(args.length, args.count);
    if (args.count / used <= kShort) {
      constexpr int64_t kWarps = kThreads / kWarpSize;
      const auto blocks = static_cast<unsigned>((used * tiles + kWarps - 1) / kWarps);
      Launch(AddPositions<T, kWide>, blocks, kThreads, 0, stream, args, used, MakeDivisor(used));
    } else {
      Launch(AddManyPositions<T, kWide>, static_cast<unsigned>(used * tiles), kLongThreads,
             kSharedBytes, stream, args, static_cast<unsigned>(tiles));
    }
  }

  const EmbeddingBackwardArgs& args;
  void* stream;
  int64_t tiles = ColumnTilesOf<T>(args.cols);
};

template <typename T, bool kWide>
void BackwardTyped(const EmbeddingBackwardArgs& args, void* stream) {
  const BackwardLaunches<T, kWide> launches = {args, stream};
  if (args.dtable != nullptr) launches.Table();
  if (args.dpositions != nullptr) launches.Positions();
}

void Backward(const EmbeddingBackwardArgs& args, void* stream) {
  if (args.count == 0 || args.cols == 0) return;
  const bool aligned =
      IsWideAligned(args.dout) && IsWideAligned(args.dtable) && IsWideAligned(args.dpositions);
  DispatchCuda<float, BFloat16, Float16>("embedding backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool wide = aligned && args.cols % kPackWidth<T> == 0;
    wide ? BackwardTyped<T, true>(args, stream) : BackwardTyped<T, false>(args, stream);
  });
}

int64_t BackwardScratch(int64_t count, int64_t /*vocab*/) { return TokenSortBytes(count); }

}  // namespace

const EmbeddingKernels kCudaEmbedding = {
    .forward = Forward, .backward = Backward, .backward_scratch = BackwardScratch};

}  // namespace pando
