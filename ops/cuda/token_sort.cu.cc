#include "ops/cuda/token_sort.h"

#include "engine/cuda/block.h"
#include "engine/cuda/launch.h"

namespace pando {
namespace {

// A pass of the sort: every block counts the digits in its tile of the keys; a scan over (digit,
// block) says where each block's keys of each digit go; and every block puts them there, in order.
// The counts are kept by warp, whose lanes find those with the same digit by ballots.

constexpr int kBits = 8;
constexpr int kDigits = 1 << kBits;
constexpr int kThreads = kDigits;  // so that a thread has a digit to itself
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kItems = 4;  // keys of a thread
constexpr int64_t kTile = static_cast<int64_t>(kThreads) * kItems;
constexpr int kScanThreads = 1024;

int64_t Tiles(int64_t count) { return (count + kTile - 1) / kTile; }

// Keys in, of the first pass the tokens themselves, whose order is 0, 1, ...
struct Keys {
  const int32_t* keys;
  const int64_t* order;  // null in the first pass
  int64_t count;
  int64_t vocab;

  __device__ int32_t Key(int64_t i) const {
    const int32_t key = keys[i];
    return key >= 0 && key < vocab ? key : static_cast<int32_t>(vocab);
  }
  __device__ int64_t Order(int64_t i) const { return order == nullptr ? i : order[i]; }
};

// This thread's keys of the block's tile: each warp has a run of it, in steps of 32.
struct TileKeys {
  __device__ TileKeys(const Keys& from, int shift) {
    const int64_t warp = threadIdx.x / kWarpSize;
    first = blockIdx.x * kTile + warp * kWarpSize * kItems + threadIdx.x % kWarpSize;
    PANDO_UNROLL
    for (int k = 0; k < kItems; ++k) {
      valid[k] = At(k) < from.count;
      key[k] = valid[k] ? from.Key(At(k)) : 0;
      digit[k] = key[k] >> shift & (kDigits - 1);
    }
  }
  __device__ int64_t At(int k) const { return first + k * int64_t{kWarpSize}; }

  int64_t first;
  bool valid[kItems];
  int32_t key[kItems];
  int digit[kItems];
};

// The lanes of this warp whose keys are valid and have this lane's digit.
__device__ inline unsigned LanesAlike(bool valid, int digit) {
  unsigned alike = __ballot_sync(kFullMask, valid);
  for (int bit = 0; bit < kBits; ++bit) {
    const bool set = (digit >> bit & 1) != 0;
    const unsigned lanes = __ballot_sync(kFullMask, set);
    alike &= set ? lanes : ~lanes;
  }
  return alike;
}

// The counts of a warp's digits.
__device__ inline int32_t* OfWarp(int32_t* counts, int64_t warp) { return counts + warp * kDigits; }

// counts[warp * kDigits + digit] = number of such keys of the warp; rank[k] = how many of them come
// before this thread's k-th key. Has barriers, and leaves all counts visible.
__device__ inline void CountDigits(const TileKeys& tile, int32_t* counts, int32_t (&rank)[kItems]) {
  for (int w = 0; w < kWarps; ++w) counts[w * kDigits + threadIdx.x] = 0;
  __syncthreads();
  int32_t* mine = OfWarp(counts, threadIdx.x / kWarpSize);
  const unsigned below = (1u << threadIdx.x % kWarpSize) - 1;
  PANDO_UNROLL
  for (int k = 0; k < kItems; ++k) {
    const unsigned alike = LanesAlike(tile.valid[k], tile.digit[k]);
    const int before = __popc(alike & below);
    rank[k] = mine[tile.digit[k]] + before;
    __syncwarp();
    if (tile.valid[k] && before == 0) mine[tile.digit[k]] += __popc(alike);
    __syncwarp();
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) CountTile(Keys from, int shift, int64_t* offsets) {
  int32_t* counts = SharedMemory<int32_t>();
  int32_t rank[kItems];
  CountDigits(TileKeys(from, shift), counts, rank);
  int64_t total = 0;
  for (int w = 0; w < kWarps; ++w) total += counts[w * kDigits + threadIdx.x];
  offsets[static_cast<int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = total;
}

// values[i] becomes the sum of values[0 .. i). One block: each thread sums a run, and after a scan
// of those sums goes over it again.
__global__ void __launch_bounds__(kScanThreads) ScanCounts(int64_t* values, int64_t n) {
  int64_t* warp_sums = SharedMemory<int64_t>();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t run = (n + kScanThreads - 1) / kScanThreads;
  const int64_t begin = threadIdx.x * run < n ? threadIdx.x * run : n;
  const int64_t end = begin + run < n ? begin + run : n;
  int64_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += values[i];
  int64_t upto = sum;  // of this and the lanes below
  for (int by = 1; by < kWarpSize; by *= 2) {
    const int64_t below = __shfl_up_sync(kFullMask, upto, by);
    if (lane >= by) upto += below;
  }
  if (lane == kWarpSize - 1) warp_sums[warp] = upto;
  __syncthreads();
  int64_t before = upto - sum;
  for (int w = 0; w < warp; ++w) before += warp_sums[w];
  for (int64_t i = begin; i < end; ++i) {
    const int64_t value = values[i];
    values[i] = before;
    before += value;
  }
}

__global__ void __launch_bounds__(kThreads)
    MoveTile(Keys from, int shift, const int64_t* offsets, int32_t* keys, int64_t* order) {
  int32_t* counts = SharedMemory<int32_t>();
  const TileKeys tile(from, shift);
  int32_t rank[kItems];
  CountDigits(tile, counts, rank);
  // Each warp's keys of a digit come after those of the warps before it.
  int32_t before = 0;
  for (int w = 0; w < kWarps; ++w) {
    int32_t* count = OfWarp(counts, w) + threadIdx.x;
    const int32_t own = *count;
    *count = before;
    before += own;
  }
  __syncthreads();
  const int32_t* warp_starts = OfWarp(counts, threadIdx.x / kWarpSize);
  PANDO_UNROLL
  for (int k = 0; k < kItems; ++k) {
    if (!tile.valid[k]) continue;
    const int64_t block_start =
        offsets[static_cast<int64_t>(tile.digit[k]) * gridDim.x + blockIdx.x];
    const int64_t to = block_start + warp_starts[tile.digit[k]] + rank[k];
    keys[to] = tile.key[k];
    order[to] = from.Order(tile.At(k));
  }
}

// The parts of the scratch, the 64-bit ones first.
struct SortBuffers {
  SortBuffers(int64_t count, void* scratch) {
    auto* p = static_cast<int64_t*>(scratch);
    for (int64_t** part : {&order[0], &order[1]}) {
      *part = p;
      p += count;
    }
    offsets = p;
    p += kDigits * Tiles(count);
    keys[0] = reinterpret_cast<int32_t*>(p);
    keys[1] = keys[0] + count;
  }

  int64_t* order[2];
  int64_t* offsets;
  int32_t* keys[2];
};

}  // namespace

int64_t TokenSortBytes(int64_t count) {
  return 2 * count * static_cast<int64_t>(sizeof(int64_t) + sizeof(int32_t)) +
         kDigits * Tiles(count) * static_cast<int64_t>(sizeof(int64_t));
}

SortedTokens SortTokens(const int32_t* tokens, int64_t count, int64_t vocab, void* scratch,
                        void* stream) {
  const SortBuffers buffers(count, scratch);
  const auto blocks = static_cast<unsigned>(Tiles(count));
  constexpr int64_t kCountBytes = sizeof(int32_t) * kWarps * kDigits;
  constexpr int64_t kScanBytes = sizeof(int64_t) * kScanThreads / kWarpSize;
  Keys from = {tokens, nullptr, count, vocab};
  int into = 0;
  for (int shift = 0; shift == 0 || vocab >> shift > 0; shift += kBits) {
    Launch(CountTile, blocks, kThreads, kCountBytes, stream, from, shift, buffers.offsets);
    Launch(ScanCounts, 1, kScanThreads, kScanBytes, stream, buffers.offsets,
           kDigits * Tiles(count));
    Launch(MoveTile, blocks, kThreads, kCountBytes, stream, from, shift, buffers.offsets,
           buffers.keys[into], buffers.order[into]);
    from = {buffers.keys[into], buffers.order[into], count, vocab};
    into = 1 - into;
  }
  return {from.keys, from.order};
}

}  // namespace pando
