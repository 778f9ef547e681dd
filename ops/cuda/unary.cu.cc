#include "ops/kernels/unary.h"

#include "ops/cuda/pieces.h"
#include "ops/cuda/tables.h"
#include "ops/unary_math.h"

namespace pando {
namespace {

template <typename C, int W>
struct Values {
  C* v;
  template <typename Math>
  PANDO_HOST_DEVICE void operator()(Math) const {
    for (int j = 0; j < W; ++j) v[j] = Math::Value(v[j]);
  }
};

template <typename C, int W>
struct Gradients {
  C* dy;  // becomes dx
  const C* saved;
  template <typename Math>
  PANDO_HOST_DEVICE void operator()(Math) const {
    for (int j = 0; j < W; ++j) dy[j] = Math::Grad(dy[j], saved[j]);
  }
};

template <typename T>
__global__ void UnaryForward(UnaryOp op, T* y, const T* x, Flat flat) {
  constexpr int kW = kPackWidth<T>;
  using C = ComputeType<T>;
  for (int64_t i = GridThread(); i < PiecesOf<kW>(flat); i += GridThreads()) {
    const int n = LengthAt<kW>(flat, i * kW);
    const bool wide = flat.wide && n == kW;
    C v[kW];
    LoadValues(x + i * kW, 1, wide, n, v);
    DispatchUnary(op, Values<C, kW>{v});
    T out[kW];
    for (int j = 0; j < kW; ++j) out[j] = RoundTo<T>(v[j]);
    StorePiece(y + i * kW, 1, wide, n, out);
  }
}

template <typename T>
__global__ void UnaryBackward(UnaryOp op, T* dx, const T* dy, const T* saved, Flat flat) {
  constexpr int kW = kPackWidth<T>;
  using C = ComputeType<T>;
  for (int64_t i = GridThread(); i < PiecesOf<kW>(flat); i += GridThreads()) {
    const int n = LengthAt<kW>(flat, i * kW);
    const bool wide = flat.wide && n == kW;
    C v[kW];
    C s[kW];
    LoadValues(dy + i * kW, 1, wide, n, v);
    LoadValues(saved + i * kW, 1, wide, n, s);
    DispatchUnary(op, Gradients<C, kW>{v, s});
    T out[kW];
    for (int j = 0; j < kW; ++j) out[j] = RoundTo<T>(v[j]);
    StorePiece(dx + i * kW, 1, wide, n, out);
  }
}

template <typename T>
__global__ void AffineForward(T* y, const T* x, ComputeType<T> a, ComputeType<T> b, Flat flat) {
  constexpr int kW = kPackWidth<T>;
  for (int64_t i = GridThread(); i < PiecesOf<kW>(flat); i += GridThreads()) {
    const int n = LengthAt<kW>(flat, i * kW);
    const bool wide = flat.wide && n == kW;
    T v[kW];
    LoadPiece(x + i * kW, 1, wide, n, v);
    for (int j = 0; j < kW; ++j) v[j] = RoundTo<T>(a * ToFloat(v[j]) + b);
    StorePiece(y + i * kW, 1, wide, n, v);
  }
}

void Forward(const UnaryArgs& args, void* stream) {
  DispatchFloating("unary", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const Flat flat = {args.n, IsWideAligned(args.y) && IsWideAligned(args.x)};
    Launch(UnaryForward<T>, PieceBlocks(PiecesOf<kPackWidth<T>>(flat)), kPieceThreads, 0, stream,
           args.op, static_cast<T*>(args.y), static_cast<const T*>(args.x), flat);
  });
}

void Backward(const UnaryBackwardArgs& args, void* stream) {
  // What is not read may be null.
  const void* saved = SavedBy(args.op) == UnarySaves::kNothing ? args.dy : args.saved;
  DispatchFloating("unary backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const Flat flat = {args.n,
                       IsWideAligned(args.dx) && IsWideAligned(args.dy) && IsWideAligned(saved)};
    Launch(UnaryBackward<T>, PieceBlocks(PiecesOf<kPackWidth<T>>(flat)), kPieceThreads, 0, stream,
           args.op, static_cast<T*>(args.dx), static_cast<const T*>(args.dy),
           static_cast<const T*>(saved), flat);
  });
}

void Affine(const AffineArgs& args, void* stream) {
  DispatchFloating("affine", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = ComputeType<T>;
    const Flat flat = {args.n, IsWideAligned(args.y) && IsWideAligned(args.x)};
    Launch(AffineForward<T>, PieceBlocks(PiecesOf<kPackWidth<T>>(flat)), kPieceThreads, 0, stream,
           static_cast<T*>(args.y), static_cast<const T*>(args.x), static_cast<C>(args.a),
           static_cast<C>(args.b), flat);
  });
}

}  // namespace

const UnaryKernels kCudaUnary = {
    .forward = Forward,
    .backward = Backward,
    .affine = Affine,
};

}  // namespace pando
