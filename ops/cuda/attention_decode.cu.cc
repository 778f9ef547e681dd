// Attention of few queries to many keys, as when generating with a cache: bound by reading keys and
// values once. Keys are cut into chunks, a block each (Dao et al., "Flash-Decoding", 2023), so that
// one sample fills a GPU; the query rows that share a key head are taken together. What the chunks
// give is put together in their order.

#include "engine/cuda/dispatch.h"
#include "ops/cuda/attention_launch.h"
#include "ops/math.h"

namespace pando {
namespace {

constexpr int kWarps = 4;
constexpr int kLaneElements = 8;  ///< of a row, in one lane
constexpr int64_t kMostRows = 16;

/// Running softmax of some keys for one query row: what a lane knows of it.
struct Partial {
  float maximum = -__builtin_inff(), sum = 0;
  float out[kLaneElements] = {};

  /// Takes in what another lane knows of other keys.
  __device__ void Merge(float other_maximum, float other_sum, const float* other_out) {
    const float best = fmaxf(maximum, other_maximum);
    const float base = best == -__builtin_inff() ? 0.0F : best;
    const float mine = FastExp2(maximum - base), theirs = FastExp2(other_maximum - base);
    maximum = best;
    sum = sum * mine + other_sum * theirs;
    PANDO_UNROLL
    for (int e = 0; e < kLaneElements; ++e) out[e] = out[e] * mine + other_out[e] * theirs;
  }
};

/// How the work is cut.
struct DecodePlan {
  int64_t rows;        ///< query rows that share a key head: group x query_length
  int64_t chunk;       ///< keys of a block
  int64_t chunks;      ///< of a sample
  int lanes;           ///< of a row: a power of 2
  int64_t row_floats;  ///< of a partial result: maximum, sum, then the outputs

  explicit DecodePlan(const AttentionShape& s) {
    constexpr int64_t kBlocks = 512, kLeast = 64;
    rows = s.query_heads / s.kv_heads * s.query_length;
    const int64_t heads = s.batch * s.kv_heads;
    const int64_t wanted = (kBlocks + heads - 1) / heads;
    chunk = (s.key_length + wanted - 1) / wanted;
    chunk = (std::max(chunk, kLeast) + kLeast - 1) / kLeast * kLeast;
    chunks = (s.key_length + chunk - 1) / chunk;
    lanes = 1;
    while (Wide(lanes * kLaneElements) < s.head_dim) lanes *= 2;
    row_floats = 2 + lanes * kLaneElements;
  }
  /// Floats of all partial results.
  int64_t Floats(const AttentionShape& s) const {
    return s.batch * s.kv_heads * chunks * rows * row_floats;
  }
};

/// Elements [column, column + 8) of a row as f32, zeros beyond `dim`.
template <typename T>
__device__ inline void LoadElements(const T* row, int column, int dim, bool wide,
                                    float (&x)[kLaneElements]) {
  constexpr int kPerPack = kPackWidth<T>;
  PANDO_UNROLL
  for (int p = 0; p < kLaneElements / kPerPack; ++p) {
    const int at = column + p * kPerPack;
    if (wide) {
      Pack<T, kPerPack> pack = {};
      if (at < dim) pack = *reinterpret_cast<const Pack<T, kPerPack>*>(row + at);
      PANDO_UNROLL
      for (int e = 0; e < kPerPack; ++e) x[p * kPerPack + e] = ToFloat(pack.v[e]);
    } else {
      for (int e = 0; e < kPerPack; ++e) {
        x[p * kPerPack + e] = at + e < dim ? ToFloat(row[at + e]) : 0.0F;
      }
    }
  }
}

/// Where query row r of a key head is.
struct QueryRow {
  int64_t head, i;
  __device__ QueryRow(const AttentionShape& s, int64_t kv_head, int64_t r)
      : head(kv_head * (s.query_heads / s.kv_heads) + r / s.query_length), i(r % s.query_length) {}
};

/// One chunk of keys of one key head, for kRows query rows at a time. A warp's groups of
/// plan.lanes lanes take a key each.
template <typename T, int kRows>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    AttentionDecodeKernel(AttentionForwardArgs args, AttentionScalars scalars, DecodePlan plan) {
  const AttentionShape& s = args.shape;
  const int dim = static_cast<int>(s.head_dim);
  const int64_t block = blockIdx.x;
  const int64_t chunk = block % plan.chunks;
  const int64_t kv_head = block / plan.chunks % s.kv_heads;
  const int64_t b = block / plan.chunks / s.kv_heads;
  const AttentionVisible see(s, b);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int column = lane % plan.lanes * kLaneElements;
  const int per_warp = kWarpSize / plan.lanes;
  const int64_t first_key = chunk * plan.chunk;
  int64_t end_key = first_key + plan.chunk;
  if (end_key > see.keys) end_key = see.keys;

  auto* const partials = static_cast<float*>(args.scratch) + block * plan.rows * plan.row_floats;
  float* const shared = SharedMemory<float>();
  for (int64_t r0 = 0; r0 < plan.rows; r0 += kRows) {
    float q[kRows][kLaneElements];
    int64_t ends[kRows];
    Partial partial[kRows];
    PANDO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const bool exists = r0 + r < plan.rows;
      const QueryRow row(s, kv_head, exists ? r0 + r : 0);
      ends[r] = exists && row.i >= see.first && row.i < see.end ? see.KeyEnd(row.i) : 0;
      PANDO_UNROLL
      for (int e = 0; e < kLaneElements; ++e) q[r][e] = 0;
      if (ends[r] > 0) {
        LoadElements(RowAt<T>(args.q, b, row.i, row.head, dim), column, dim, scalars.wide, q[r]);
      }
    }
    // All lanes of a warp go round together, for the sums across lanes.
    for (int64_t j0 = first_key + Wide(warp * per_warp); j0 < end_key;
         j0 += Wide(kWarps * per_warp)) {
      const int64_t j = j0 + lane / plan.lanes;
      float k[kLaneElements] = {}, v[kLaneElements] = {};
      if (j < end_key) {
        LoadElements(RowAt<T>(args.k, b, j, kv_head, dim), column, dim, scalars.wide, k);
        LoadElements(RowAt<T>(args.v, b, j, kv_head, dim), column, dim, scalars.wide, v);
      }
      PANDO_UNROLL
      for (int r = 0; r < kRows; ++r) {
        float score = 0;
        PANDO_UNROLL
        for (int e = 0; e < kLaneElements; ++e) score += q[r][e] * k[e];
        for (int by = 1; by < plan.lanes; by *= 2) score += __shfl_xor_sync(kFullMask, score, by);
        if (j < ends[r] && j < end_key) partial[r].Merge(score * scalars.score_scale, 1.0F, v);
      }
    }
    // Groups of lanes, then warps, in their order.
    PANDO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      Partial& mine = partial[r];
      for (int by = plan.lanes; by < kWarpSize; by *= 2) {
        float other[kLaneElements];
        const float maximum = __shfl_xor_sync(kFullMask, mine.maximum, by);
        const float sum = __shfl_xor_sync(kFullMask, mine.sum, by);
        PANDO_UNROLL
        for (int e = 0; e < kLaneElements; ++e) {
          other[e] = __shfl_xor_sync(kFullMask, mine.out[e], by);
        }
        mine.Merge(maximum, sum, other);
      }
      if (lane < plan.lanes) {
        float* const to = shared + (r * kWarps + warp) * plan.row_floats;
        if (lane == 0) {
          to[0] = mine.maximum;
          to[1] = mine.sum;
        }
        PANDO_UNROLL
        for (int e = 0; e < kLaneElements; ++e) to[2 + column + e] = mine.out[e];
      }
    }
    __syncthreads();
    for (int r = warp; r < kRows && r0 + r < plan.rows; r += kWarps) {
      if (lane >= plan.lanes) continue;
      Partial sum;
      for (int w = 0; w < kWarps; ++w) {
        const float* const from = shared + (r * kWarps + w) * plan.row_floats;
        sum.Merge(from[0], from[1], from + 2 + column);
      }
      float* const to = partials + (r0 + r) * plan.row_floats;
      if (lane == 0) {
        to[0] = sum.maximum;
        to[1] = sum.sum;
      }
      PANDO_UNROLL
      for (int e = 0; e < kLaneElements; ++e) to[2 + column + e] = sum.out[e];
    }
    __syncthreads();
  }
}

/// Puts the chunks' results together, a warp a query row.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    AttentionCombineKernel(AttentionForwardArgs args, DecodePlan plan) {
  const AttentionShape& s = args.shape;
  const int dim = static_cast<int>(s.head_dim);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (at >= s.batch * s.kv_heads * plan.rows || lane >= plan.lanes) return;
  const int64_t head_of_all = at / plan.rows, r = at % plan.rows;
  const int64_t b = head_of_all / s.kv_heads, kv_head = head_of_all % s.kv_heads;
  const QueryRow row(s, kv_head, r);
  const int column = lane * kLaneElements;
  Partial sum;
  for (int64_t c = 0; c < plan.chunks; ++c) {
    const float* const from = static_cast<const float*>(args.scratch) +
                              ((head_of_all * plan.chunks + c) * plan.rows + r) * plan.row_floats;
    sum.Merge(from[0], from[1], from + 2 + column);
  }
  const bool empty = sum.maximum == -__builtin_inff();
  const float scale = empty ? 0.0F : 1.0F / sum.sum;
  T* const out = RowAt<T>(args.out, b, row.i, row.head, dim) + column;
  for (int e = 0; e < kLaneElements && column + e < dim; ++e) {
    out[e] = RoundTo<T>(sum.out[e] * scale);
  }
  if (args.lse != nullptr && lane == 0) {
    static_cast<float*>(args.lse)[(b * s.query_heads + row.head) * s.query_length + row.i] =
        empty ? __builtin_inff() : sum.maximum * kLn2 + Log(sum.sum);
  }
}

}  // namespace

bool AttentionDecodes(const AttentionShape& s) {
  return s.dropout == 0 && s.batch > 0 && s.query_length <= 8 && s.key_length > 0 &&
         s.query_heads / s.kv_heads * s.query_length <= kMostRows;
}

int64_t AttentionDecodeScratchBytes(const AttentionShape& s) {
  return DecodePlan(s).Floats(s) * static_cast<int64_t>(sizeof(float));
}

void AttentionDecode(const AttentionForwardArgs& args, const AttentionScalars& scalars,
                     void* stream) {
  const AttentionShape& s = args.shape;
  const DecodePlan plan(s);
  const auto blocks = static_cast<unsigned>(s.batch * s.kv_heads * plan.chunks);
  const int64_t combining = (s.batch * s.kv_heads * plan.rows + kWarps - 1) / kWarps;
  DispatchCuda<float, BFloat16, Float16>("attention", s.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto launch = [&](auto rows) {
      constexpr int kRows = decltype(rows)::value;
      Launch(AttentionDecodeKernel<T, kRows>, dim3(blocks), kWarps * kWarpSize,
             static_cast<int64_t>(sizeof(float)) * kRows * kWarps * plan.row_floats, stream, args,
             scalars, plan);
    };
    if (plan.rows == 1) {
      launch(std::integral_constant<int, 1>{});
    } else {
      launch(std::integral_constant<int, 4>{});
    }
    Launch(AttentionCombineKernel<T>, dim3(static_cast<unsigned>(combining)), kWarps * kWarpSize, 0,
           stream, args, plan);
  });
}

}  // namespace pando
