#include "ops/kernels/column_sums.h"

#include "engine/cuda/dispatch.h"
#include "ops/cuda/column_partials.h"
#include "ops/cuda/tables.h"

namespace pando {
namespace {

template <typename Element, bool kWideRows>
struct SumOfRows {
  using T = Element;
  static constexpr bool kWide = kWideRows;
  static constexpr bool kSums = true;
  static constexpr int kRows = 4;
  static constexpr int kW = kPackWidth<T>;
  using Loaded = Pack<T, kW>;

  __device__ void Begin(int64_t /*column*/, int /*n*/) {}
  __device__ Loaded Load(int64_t row, int64_t column, int n) const {
    return LoadPack<kWide, kW>(x + row * cols + column, n);
  }
  __device__ void Use(const Loaded& v, int64_t /*row*/, int64_t /*column*/, int /*n*/,
                      float (&sums)[kW]) const {
    for (int j = 0; j < kW; ++j) sums[j] += ToFloat(v.v[j]);
  }

  const T* x;
  int64_t cols;
};

void Run(const ColumnSumsArgs& args, void* stream) {
  float* partials = static_cast<float*>(args.scratch);
  DispatchCuda<float, BFloat16, Float16>("column_sums", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = static_cast<const T*>(args.x);
    if (IsWideAligned(x) && args.cols % kPackWidth<T> == 0) {
      LaunchColumnTiles(SumOfRows<T, true>{x, args.cols}, args.rows, args.cols, partials, stream);
    } else {
      LaunchColumnTiles(SumOfRows<T, false>{x, args.cols}, args.rows, args.cols, partials, stream);
    }
  });
  AddPartials(partials, ChunksForTiles(args.rows, args.cols).count, args.cols, args.cols,
              args.accumulate, static_cast<float*>(args.sums), nullptr, stream);
}

int64_t Scratch(int64_t rows, int64_t cols, DType /*dtype*/) {
  return TilePartialBytes(rows, cols);
}

}  // namespace

const ColumnSumsKernels kCudaColumnSums = {.run = Run, .scratch = Scratch};

}  // namespace pando
