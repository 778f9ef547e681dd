#include "ops/kernels/layer_norm.h"

#include "engine/cuda/dispatch.h"
#include "ops/cuda/column_partials.h"
#include "ops/cuda/rows.h"
#include "ops/cuda/tables.h"
#include "ops/math.h"

namespace pando {
namespace {

constexpr int kHeld = 4;

// `weight` and `bias` beside args, so that the compiler knows that nothing written is theirs.
template <typename T, bool kWide, RowTeam kTeam>
__global__ void __launch_bounds__(kRowThreads, 2)
    LayerNormForward(LayerNormForwardArgs args, const T* __restrict__ weight,
                     const T* __restrict__ bias) {
  using X = Row<T, kWide, kTeam, kHeld>;
  const int64_t cols = args.cols;
  for (int64_t r = X::First(); r < args.rows; r += X::Step()) {
    X row(static_cast<const T*>(args.x) + r * cols, cols);
    if (args.residual != nullptr) {
      row.AddAndStore(static_cast<const T*>(args.residual) + r * cols,
                      static_cast<T*>(args.sum) + r * cols);
    }
    float sum = 0;
    PANDO_UNROLL
    for (int k = 0; k < row.Steps(); ++k) {
      if (!row.Has(k)) break;
      const auto x = row.Get(k);
      for (int j = 0; j < X::kW; ++j) sum += ToFloat(x.v[j]);  // beyond the row are zeros
    }
    const float mean = X::Reduce(SumOp(), sum) / static_cast<float>(cols);
    // A second pass: the deviations are taken from the mean, so that nothing cancels.
    float squares = 0;
    PANDO_UNROLL
    for (int k = 0; k < row.Steps(); ++k) {
      if (!row.Has(k)) break;
      const auto x = row.Get(k);
      for (int j = 0; j < X::kW; ++j) {
        const float d = ToFloat(x.v[j]) - mean;
        if (j < row.Count(k)) squares += d * d;
      }
    }
    const float variance = X::Reduce(SumOp(), squares) / static_cast<float>(cols);
    const float rstd = 1 / Sqrt(variance + static_cast<float>(args.eps));
    PANDO_UNROLL
    for (int k = 0; k < row.Steps(); ++k) {
      if (!row.Has(k)) break;
      auto x = row.Get(k);
      const auto w = row.Read(weight, k);
      const auto b = bias == nullptr ? typename X::Elements{} : row.Read(bias, k);
      for (int j = 0; j < X::kW; ++j) {
        x.v[j] = RoundTo<T>((ToFloat(x.v[j]) - mean) * rstd * ToFloat(w.v[j]) + ToFloat(b.v[j]));
      }
      row.Write(static_cast<T*>(args.y) + r * cols, k, x);
    }
    if (X::Leads()) {
      static_cast<float*>(args.mean)[r] = mean;
      static_cast<float*>(args.rstd)[r] = rstd;
    }
  }
}

void Forward(const LayerNormForwardArgs& args, void* stream) {
  if (args.cols == 0) return;
  // Null is aligned.
  const bool aligned = IsWideAligned(args.x) && IsWideAligned(args.residual) &&
                       IsWideAligned(args.sum) && IsWideAligned(args.weight) &&
                       IsWideAligned(args.bias) && IsWideAligned(args.y);
  DispatchCuda<float, BFloat16, Float16>("layer_norm", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RowLaunch launch = LaunchForRows<T, kHeld>(args.rows, args.cols, aligned);
    DispatchRows(launch, [&](auto wide, auto team) {
      Launch(LayerNormForward<T, decltype(wide)::value, decltype(team)::value>, launch.blocks,
             launch.threads, launch.shared_bytes, stream, args, static_cast<const T*>(args.weight),
             static_cast<const T*>(args.bias));
    });
  });
}

// Backward: a block has a chunk of rows, of which it sums dweight and dbias. A thread has the same
// Pack of columns in each row, so those sums are in its registers; short rows are taken several at
// a time, each by a group of threads.

constexpr int kMostThreads = 1024;
constexpr int kGroupedThreads = 512;  // of a block, as far as groups fill them
constexpr int64_t kMostChunks = 256;

struct Chunks {
  int64_t rows;   // of each; the last may have fewer
  int64_t count;  // of chunks
};

Chunks ChunksFor(int64_t rows) {
  const int64_t chunk = std::max<int64_t>((rows + kMostChunks - 1) / kMostChunks, 8);
  return {chunk, (rows + chunk - 1) / chunk};
}

// This thread's columns of the row, what is computed from them, and the row's statistics.
template <typename T, bool kWide>
struct BackwardPack {
  static constexpr int kW = kPackWidth<T>;
  using Elements = Pack<T, kW>;

  // `at` is where the columns are in the matrices, n how many there are if not kWide.
  __device__ void Load(const LayerNormBackwardArgs& args, int64_t at, int n) {
    x = LoadPack<kWide, kW>(static_cast<const T*>(args.x) + at, kWide ? kW : n);
    dy = LoadPack<kWide, kW>(static_cast<const T*>(args.dy) + at, kWide ? kW : n);
  }
  __device__ void LoadStatistics(const LayerNormBackwardArgs& args, int64_t row) {
    mean = static_cast<const float*>(args.mean)[row];
    rstd = static_cast<const float*>(args.rstd)[row];
  }
  __device__ float Xhat(int j) const { return (ToFloat(x.v[j]) - mean) * rstd; }
  // dy * weight: the gradient of xhat. Zero beyond the row, where weights are loaded as zeros.
  __device__ float G(int j, const Elements& weight) const {
    return ToFloat(dy.v[j]) * ToFloat(weight.v[j]);
  }
  // Writes dx, given the row's means of g and of g * xhat.
  __device__ void StoreGradient(const LayerNormBackwardArgs& args, const Elements& weight, float g,
                                float g_xhat, int64_t at, int n) const {
    const T* dsum = static_cast<const T*>(args.dsum);
    Elements dx = {};
    if (dsum != nullptr) dx = LoadPack<kWide, kW>(dsum + at, kWide ? kW : n);
    for (int j = 0; j < kW; ++j) {
      dx.v[j] = RoundTo<T>(ToFloat(dx.v[j]) + rstd * (G(j, weight) - g - Xhat(j) * g_xhat));
    }
    StorePack<kWide, kW>(static_cast<T*>(args.dx) + at, kWide ? kW : n, dx);
  }

  Elements x;
  Elements dy;
  float mean;
  float rstd;
};

// The sums of two values over a group of `warps` warps, the first of which is `first`, in all its
// threads. `shared` alternates between two places, so that one barrier is enough: a place is
// written again only after the other's barrier, by when all have read it.
__device__ inline void GroupSums(float* a, float* b, int first, int warps, float* shared) {
  *a = WarpReduce(SumOp(), *a);
  *b = WarpReduce(SumOp(), *b);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  if (threadIdx.x % kWarpSize == 0) {
    shared[Wide(2 * warp)] = *a;
    shared[2 * warp + 1] = *b;
  }
  __syncthreads();
  *a = shared[Wide(2 * first)];
  *b = shared[2 * first + 1];
  for (int w = first + 1; w < first + warps; ++w) {
    *a += shared[Wide(2 * w)];
    *b += shared[2 * w + 1];
  }
}

constexpr int kSumsPlace = 2 * kMostThreads / kWarpSize;  // floats of GroupSums

// Adds the sums of groups 1, 2, ... to those of group 0, through `shared`.
template <int kCount>
__device__ inline void AddGroups(float (&sums)[kCount], int group, int groups, int member,
                                 int members, float* shared) {
  if (group > 0) {
    float* mine = shared + static_cast<int64_t>(group - 1) * kCount * members;
    for (int j = 0; j < kCount; ++j) mine[j * members + member] = sums[j];
  }
  __syncthreads();
  if (group > 0) return;
  for (int other = 0; other < groups - 1; ++other) {
    const float* theirs = shared + static_cast<int64_t>(other) * kCount * members;
    for (int j = 0; j < kCount; ++j) sums[j] += theirs[j * members + member];
  }
}

template <typename T, bool kWide>
__global__ void __launch_bounds__(kMostThreads)
    LayerNormBackward(LayerNormBackwardArgs args, const T* __restrict__ weight, int members,
                      int64_t chunk_rows) {
  using Row = BackwardPack<T, kWide>;
  constexpr int kW = Row::kW;
  const int group = static_cast<int>(threadIdx.x) / members;
  const int groups = static_cast<int>(blockDim.x) / members;
  const int member = static_cast<int>(threadIdx.x) - group * members;
  const int64_t cols = args.cols;
  const int64_t column = static_cast<int64_t>(member) * kW;
  const int64_t left = cols - column;
  const int n = left >= kW ? kW : static_cast<int>(left > 0 ? left : 0);
  typename Row::Elements w = {};
  if (n > 0) w = LoadPack<kWide, kW>(weight + column, kWide ? kW : n);
  const float inverse_cols = 1 / static_cast<float>(cols);
  const int64_t begin = blockIdx.x * chunk_rows;
  const int64_t end = begin + chunk_rows < args.rows ? begin + chunk_rows : args.rows;
  float* shared = SharedMemory<float>();
  float sums[2 * kW] = {};  // of dy * xhat, then of dy
  int place = 0;
  for (int64_t first = begin; first < end; first += groups) {
    const int64_t r = first + group;
    const bool mine = r < end && n > 0;
    Row row = {};
    float g = 0;
    float g_xhat = 0;
    if (mine) {
      row.Load(args, r * cols + column, n);
      row.LoadStatistics(args, r);
      for (int j = 0; j < kW; ++j) {
        const float xhat = row.Xhat(j);
        const float d = ToFloat(row.dy.v[j]);
        g += row.G(j, w);
        g_xhat += row.G(j, w) * xhat;
        sums[j] += d * xhat;
        sums[kW + j] += d;
      }
    }
    const int warps = members / kWarpSize;
    GroupSums(&g, &g_xhat, group * warps, warps, shared + place);
    place = kSumsPlace - place;
    if (mine) {
      row.StoreGradient(args, w, g * inverse_cols, g_xhat * inverse_cols, r * cols + column, n);
    }
  }
  AddGroups(sums, group, groups, member, members, shared + Wide(2 * kSumsPlace));
  if (group > 0) return;
  float* partials = static_cast<float*>(args.scratch) + int64_t{blockIdx.x} * 2 * cols;
  for (int j = 0; j < kW; ++j) {
    if (j >= n) break;
    partials[column + j] = sums[j];
    partials[cols + column + j] = sums[kW + j];
  }
}

// For rows that are longer than a block: each is read twice, and the sums are kept in scratch.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kRowThreads, 2)
    LayerNormBackwardLong(LayerNormBackwardArgs args, const T* __restrict__ weight,
                          int64_t chunk_rows) {
  using Row = BackwardPack<T, kWide>;
  constexpr int kW = Row::kW;
  const int64_t cols = args.cols;
  const int64_t step = static_cast<int64_t>(blockDim.x) * kW;
  const int64_t begin = blockIdx.x * chunk_rows;
  const int64_t end = begin + chunk_rows < args.rows ? begin + chunk_rows : args.rows;
  float* dweight = static_cast<float*>(args.scratch) + int64_t{blockIdx.x} * 2 * cols;
  float* dbias = dweight + cols;
  for (int64_t r = begin; r < end; ++r) {
    Row row;
    row.LoadStatistics(args, r);
    float g = 0;
    float g_xhat = 0;
    for (int64_t c = threadIdx.x * static_cast<int64_t>(kW); c < cols; c += step) {
      const int n = cols - c < kW ? static_cast<int>(cols - c) : kW;
      row.Load(args, r * cols + c, n);
      const auto w = LoadPack<kWide, kW>(weight + c, kWide ? kW : n);
      for (int j = 0; j < kW; ++j) {
        g += row.G(j, w);
        g_xhat += row.G(j, w) * row.Xhat(j);
      }
    }
    g = BlockReduce(SumOp(), g, SharedMemory<float>()) / static_cast<float>(cols);
    g_xhat = BlockReduce(SumOp(), g_xhat, SharedMemory<float>()) / static_cast<float>(cols);
    for (int64_t c = threadIdx.x * static_cast<int64_t>(kW); c < cols; c += step) {
      const int n = cols - c < kW ? static_cast<int>(cols - c) : kW;
      row.Load(args, r * cols + c, n);
      const auto w = LoadPack<kWide, kW>(weight + c, kWide ? kW : n);
      for (int j = 0; j < kW; ++j) {
        if (j >= n) break;
        const float d = ToFloat(row.dy.v[j]);
        dweight[c + j] = (r > begin ? dweight[c + j] : 0.0f) + d * row.Xhat(j);
        dbias[c + j] = (r > begin ? dbias[c + j] : 0.0f) + d;
      }
      row.StoreGradient(args, w, g, g_xhat, r * cols + c, n);
    }
  }
}

template <typename T, bool kWide>
void BackwardTyped(const LayerNormBackwardArgs& args, void* stream) {
  constexpr int64_t kFloat = sizeof(float);
  const Chunks chunks = ChunksFor(args.rows);
  const auto blocks = static_cast<unsigned>(chunks.count);
  const T* weight = static_cast<const T*>(args.weight);
  const int64_t members = WholeWarps(PacksFor<T>(args.cols));
  if (members > kMostThreads) {
    Launch(LayerNormBackwardLong<T, kWide>, blocks, kRowThreads, kWarpSize * kFloat, stream, args,
           weight, chunks.rows);
    return;
  }
  const int64_t groups = std::max<int64_t>(kGroupedThreads / members, 1);
  const int64_t sums = (groups - 1) * members * 2 * kPackWidth<T>;
  Launch(LayerNormBackward<T, kWide>, blocks, static_cast<unsigned>(groups * members),
         (Wide(2 * kSumsPlace) + sums) * kFloat, stream, args, weight, static_cast<int>(members),
         chunks.rows);
}

void Backward(const LayerNormBackwardArgs& args, void* stream) {
  if (args.cols == 0) return;
  const bool aligned = IsWideAligned(args.x) && IsWideAligned(args.weight) &&
                       IsWideAligned(args.dy) && IsWideAligned(args.dsum) && IsWideAligned(args.dx);
  DispatchCuda<float, BFloat16, Float16>("layer_norm backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool wide = aligned && args.cols % kPackWidth<T> == 0;
    wide ? BackwardTyped<T, true>(args, stream) : BackwardTyped<T, false>(args, stream);
  });
  AddPartials(static_cast<const float*>(args.scratch), ChunksFor(args.rows).count, 2 * args.cols,
              args.cols, args.accumulate, static_cast<float*>(args.dweight),
              static_cast<float*>(args.dbias), stream);
}

int64_t BackwardScratch(int64_t rows, int64_t cols, DType /*dtype*/) {
  return ChunksFor(rows).count * 2 * cols * static_cast<int64_t>(sizeof(float));
}

}  // namespace

const LayerNormKernels kCudaLayerNorm = {
    .forward = Forward, .backward = Backward, .backward_scratch = BackwardScratch};

}  // namespace pando
