// Attention on CUDA: the table, and the statistics that backward begins with.

#include "ops/kernels/attention.h"

#include "engine/cuda/block.h"
#include "engine/cuda/launch.h"
#include "ops/cuda/attention_check.h"
#include "ops/cuda/attention_launch.h"
#include "ops/cuda/attention_tile.h"
#include "ops/cuda/tables.h"

namespace pando {
namespace {

constexpr int kStatisticsWarps = 8;

/// Statistics of every row, a warp each; those that see nothing, and padding, add nothing.
template <typename T>
__global__ void __launch_bounds__(kStatisticsWarps* kWarpSize)
    AttentionStatisticsKernel(AttentionBackwardArgs args, QueryStatistics statistics) {
  const AttentionShape& s = args.shape;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t rows = s.batch * s.query_heads * statistics.padded;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kStatisticsWarps;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kStatisticsWarps + threadIdx.x / kWarpSize;
  for (; row < rows; row += step) {
    const int64_t head_row = row / statistics.padded, i = row % statistics.padded;
    const int64_t b = head_row / s.query_heads, head = head_row % s.query_heads;
    const AttentionVisible see(s, b);
    float lse = __builtin_inff(), delta = 0;
    if (i >= see.first && i < see.end) {
      const T* const out = RowAt<T>(args.out, b, i, head, s.head_dim);
      const T* const dout = RowAt<T>(args.dout, b, i, head, s.head_dim);
      for (int e = lane; e < s.head_dim; e += kWarpSize)
        delta += ToFloat(out[e]) * ToFloat(dout[e]);
      lse = static_cast<const float*>(args.lse)[head_row * s.query_length + i] * kLog2E;
    }
    delta = WarpReduce(SumOp(), delta);
    if (lane == 0) {
      statistics.lse[row] = lse;
      statistics.delta[row] = delta;
    }
  }
}

/// Whether rows may be read and written 16 bytes at a time.
template <typename Rows>
bool WideRows(const AttentionShape& s, const Rows& rows) {
  const int64_t per_chunk = 16 / SizeOf(s.dtype);
  return IsWideAligned(rows.data) && rows.batch_stride % per_chunk == 0 &&
         rows.row_stride % per_chunk == 0 && s.head_dim % per_chunk == 0;
}

void Forward(const AttentionForwardArgs& args, void* stream) {
  const AttentionShape& s = args.shape;
  CheckAttentionShape(s);
  const AttentionScalars scalars(s, WideRows(s, args.q) && WideRows(s, args.k) &&
                                        WideRows(s, args.v) && WideRows(s, args.out));
  AttentionDecodes(s) ? AttentionDecode(args, scalars, stream)
                      : AttentionForward(args, scalars, stream);
}

int64_t ForwardScratchBytes(const AttentionShape& s) {
  return AttentionDecodes(s) ? AttentionDecodeScratchBytes(s) : 0;
}

/// Rows of statistics of one head: the last tile reads past the end.
int64_t PaddedQueries(const AttentionShape& s) {
  return (s.query_length + kMostTileRows - 1) / kMostTileRows * kMostTileRows;
}

int64_t BackwardScratchBytes(const AttentionShape& s) {
  return 2 * s.batch * s.query_heads * PaddedQueries(s) * static_cast<int64_t>(sizeof(float));
}

void Backward(const AttentionBackwardArgs& args, void* stream) {
  const AttentionShape& s = args.shape;
  CheckAttentionShape(s);
  const bool wide = WideRows(s, args.q) && WideRows(s, args.k) && WideRows(s, args.v) &&
                    WideRows(s, args.dout) && WideRows(s, args.dq) && WideRows(s, args.dk) &&
                    WideRows(s, args.dv);
  const AttentionScalars scalars(s, wide);
  const int64_t padded = PaddedQueries(s);
  const int64_t rows = s.batch * s.query_heads * padded;
  auto* const lse = static_cast<float*>(args.scratch);
  const QueryStatistics statistics{lse, lse + rows, padded};
  DispatchCuda<float, BFloat16, Float16>("attention", s.dtype, [&](auto tag) {
    Launch(AttentionStatisticsKernel<decltype(tag)>, GridFor(rows, kStatisticsWarps),
           kStatisticsWarps * kWarpSize, 0, stream, args, statistics);
  });
  AttentionQueryGradient(args, statistics, scalars, stream);
  AttentionKeyGradient(args, statistics, scalars, stream);
}

}  // namespace

const AttentionKernels kCudaAttention = {Forward, Backward, ForwardScratchBytes,
                                         BackwardScratchBytes};

}  // namespace pando
