#include "ops/kernels/gelu.h"

#include "engine/cuda/dispatch.h"
#include "ops/cuda/column_partials.h"
#include "ops/cuda/tables.h"
#include "ops/math.h"

namespace pando {
namespace {

// What both directions are to ColumnTiles, but for Load and Use.
template <typename Element, bool kWideRows, bool kWithSums>
struct GeluTile {
  using T = Element;
  static constexpr bool kWide = kWideRows;
  static constexpr bool kSums = kWithSums;
  static constexpr int kW = kPackWidth<T>;
  using Elements = Pack<T, kW>;

  __device__ Elements Read(const T* p, int64_t row, int64_t column, int n) const {
    return LoadPack<kWide, kW>(p + row * cols + column, n);
  }
  __device__ void Write(T* p, int64_t row, int64_t column, int n, const Elements& v) const {
    StorePack<kWide, kW>(p + row * cols + column, n, v);
  }

  int64_t cols;
};

template <typename T, bool kWide>
struct GeluForwardTile : GeluTile<T, kWide, false> {
  using Base = GeluTile<T, kWide, false>;
  using Loaded = typename Base::Elements;
  static constexpr int kRows = 4;

  __device__ void Begin(int64_t column, int n) {
    if (bias != nullptr) shift = LoadPack<kWide, Base::kW>(bias + column, n);
  }
  __device__ Loaded Load(int64_t row, int64_t column, int n) const {
    return this->Read(x, row, column, n);
  }
  __device__ void Use(Loaded v, int64_t row, int64_t column, int n,
                      float (&/*sums*/)[Base::kW]) const {
    if (bias != nullptr) {
      for (int j = 0; j < Base::kW; ++j) {
        v.v[j] = RoundTo<T>(ToFloat(v.v[j]) + ToFloat(shift.v[j]));
      }
    }
    if (pre != nullptr) this->Write(pre, row, column, n, v);
    for (int j = 0; j < Base::kW; ++j) v.v[j] = RoundTo<T>(Gelu(ToFloat(v.v[j])));
    this->Write(y, row, column, n, v);
  }

  const T* x;
  const T* bias;
  T* pre;
  T* y;
  Loaded shift = {};  // this thread's part of the bias
};

template <typename T, bool kWide, bool kSums>
struct GeluBackwardTile : GeluTile<T, kWide, kSums> {
  using Base = GeluTile<T, kWide, kSums>;
  struct Loaded {
    typename Base::Elements pre;
    typename Base::Elements dy;
  };
  static constexpr int kRows = 2;

  __device__ void Begin(int64_t /*column*/, int /*n*/) {}
  __device__ Loaded Load(int64_t row, int64_t column, int n) const {
    return {this->Read(pre, row, column, n), this->Read(dy, row, column, n)};
  }
  __device__ void Use(const Loaded& v, int64_t row, int64_t column, int n,
                      float (&sums)[Base::kW]) const {
    typename Base::Elements out;
    for (int j = 0; j < Base::kW; ++j) {
      const float d = ToFloat(v.dy.v[j]) * GeluDerivative(ToFloat(v.pre.v[j]));
      out.v[j] = RoundTo<T>(d);
      if (kSums) sums[j] += d;
    }
    this->Write(dx, row, column, n, out);
  }

  const T* pre;
  const T* dy;
  T* dx;
};

template <typename T, bool kWide>
void ForwardTyped(const GeluForwardArgs& args, void* stream) {
  const GeluForwardTile<T, kWide> tile = {
      {args.cols},
      static_cast<const T*>(args.x),
      static_cast<const T*>(args.bias),
      // Without a bias x itself may be kept instead.
      args.pre == args.x && args.bias == nullptr ? nullptr : static_cast<T*>(args.pre),
      static_cast<T*>(args.y)};
  LaunchColumnTiles(tile, args.rows, args.cols, nullptr, stream);
}

void Forward(const GeluForwardArgs& args, void* stream) {
  DispatchCuda<float, BFloat16, Float16>("gelu", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    // Null is aligned.
    const bool wide = args.cols % kPackWidth<T> == 0 && IsWideAligned(args.x) &&
                      IsWideAligned(args.bias) && IsWideAligned(args.pre) && IsWideAligned(args.y);
    wide ? ForwardTyped<T, true>(args, stream) : ForwardTyped<T, false>(args, stream);
  });
}

template <typename T, bool kWide, bool kSums>
void BackwardTyped(const GeluBackwardArgs& args, void* stream) {
  const GeluBackwardTile<T, kWide, kSums> tile = {{args.cols},
                                                  static_cast<const T*>(args.pre),
                                                  static_cast<const T*>(args.dy),
                                                  static_cast<T*>(args.dx)};
  LaunchColumnTiles(tile, args.rows, args.cols, static_cast<float*>(args.scratch), stream);
}

void Backward(const GeluBackwardArgs& args, void* stream) {
  const bool sums = args.dbias != nullptr;
  DispatchCuda<float, BFloat16, Float16>("gelu backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool wide = args.cols % kPackWidth<T> == 0 && IsWideAligned(args.pre) &&
                      IsWideAligned(args.dy) && IsWideAligned(args.dx);
    const auto run = wide ? (sums ? BackwardTyped<T, true, true> : BackwardTyped<T, true, false>)
                          : (sums ? BackwardTyped<T, false, true> : BackwardTyped<T, false, false>);
    run(args, stream);
  });
  AddPartials(static_cast<const float*>(args.scratch), ChunksForTiles(args.rows, args.cols).count,
              args.cols, args.cols, args.accumulate, static_cast<float*>(args.dbias), nullptr,
              stream);
}

int64_t BackwardScratch(int64_t rows, int64_t cols, DType /*dtype*/) {
  return TilePartialBytes(rows, cols);
}

}  // namespace

const GeluKernels kCudaGelu = {
    .forward = Forward, .backward = Backward, .backward_scratch = BackwardScratch};

}  // namespace pando
