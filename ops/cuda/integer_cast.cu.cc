#include "ops/cuda/integer_cast.h"

#include "ops/cast_math.h"
#include "ops/cuda/pieces.h"

namespace pando {
namespace {

// Pieces of 16 bytes of the wider type.
template <typename Y, typename X>
constexpr int kCastWidth = kPackWidth<Y> < kPackWidth<X> ? kPackWidth<Y> : kPackWidth<X>;

template <typename Y, typename X>
__global__ void IntegerCast(Y* y, const X* x, Flat flat) {
  constexpr int kW = kCastWidth<Y, X>;
  for (int64_t i = GridThread(); i < PiecesOf<kW>(flat); i += GridThreads()) {
    const int n = LengthAt<kW>(flat, i * kW);
    const bool wide = flat.wide && n == kW;
    X v[kW];
    Y out[kW];
    LoadPiece(x + i * kW, 1, wide, n, v);
    for (int j = 0; j < kW; ++j) CastElement(v[j], &out[j]);
    StorePiece(y + i * kW, 1, wide, n, out);
  }
}

template <typename Y, typename X>
void Cast(const IntegerCastArgs& args, void* stream) {
  const Flat flat = {args.n, IsWideAligned(args.y) && IsWideAligned(args.x)};
  Launch(IntegerCast<Y, X>, PieceBlocks(PiecesOf<kCastWidth<Y, X>>(flat)), kPieceThreads, 0, stream,
         static_cast<Y*>(args.y), static_cast<const X*>(args.x), flat);
}

template <typename Body>
void DispatchInteger(DType dtype, const Body& body) {
  DispatchCuda<int32_t, int64_t>("integer_cast", dtype, body);
}

}  // namespace

void CudaIntegerCast(const IntegerCastArgs& args, void* stream) {
  if (IsFloating(args.y_dtype)) {
    DispatchFloating("integer_cast", args.y_dtype, [&](auto y_tag) {
      DispatchInteger(args.x_dtype,
                      [&](auto x_tag) { Cast<decltype(y_tag), decltype(x_tag)>(args, stream); });
    });
    return;
  }
  DispatchInteger(args.y_dtype, [&](auto y_tag) {
    DispatchCuda<float, BFloat16, Float16, double, int32_t, int64_t>(
        "integer_cast", args.x_dtype,
        [&](auto x_tag) { Cast<decltype(y_tag), decltype(x_tag)>(args, stream); });
  });
}

}  // namespace pando
