#include "ops/kernels/binary.h"

#include "ops/binary_math.h"
#include "ops/cuda/sum_terms.h"
#include "ops/cuda/tables.h"

namespace pando {
namespace {

template <typename C, int W>
struct Values {
  C* a;  // becomes y
  const C* b;
  template <typename Math>
  PANDO_HOST_DEVICE void operator()(Math) const {
    for (int j = 0; j < W; ++j) a[j] = Math::Value(a[j], b[j]);
  }
};

template <typename T>
__global__ void BinaryForward(BinaryOp op, T* y, const T* a, const T* b, PieceGrid<2> grid,
                              bool wide_y) {
  constexpr int kW = kPackWidth<T>;
  using C = ComputeType<T>;
  for (int64_t i = GridThread(); i < grid.count; i += GridThreads()) {
    const Piece<2> piece = PieceAt(grid, i);
    C u[kW];
    C v[kW];
    LoadValues(a + piece.at[0], PieceStride(grid, 0), IsWide(grid, piece, 0), piece.n, u);
    LoadValues(b + piece.at[1], PieceStride(grid, 1), IsWide(grid, piece, 1), piece.n, v);
    DispatchBinary(op, Values<C, kW>{u, v});
    T out[kW];
    for (int j = 0; j < kW; ++j) out[j] = RoundTo<T>(u[j]);
    StorePiece(y + piece.first, 1, wide_y && piece.n == kW, piece.n, out);
  }
}

void Forward(const BinaryArgs& args, void* stream) {
  DispatchFloating("binary", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const PieceGrid<2> grid = MakePieces(args.index, kPackWidth<T>, {args.a, args.b});
    Launch(BinaryForward<T>, PieceBlocks(grid.count), kPieceThreads, 0, stream, args.op,
           static_cast<T*>(args.y), static_cast<const T*>(args.a), static_cast<const T*>(args.b),
           grid, IsWideResult(grid, args.y));
  });
}

template <typename C, int W>
struct Gradients {
  C* dy;  // becomes the gradient of the operand
  const C* a;
  const C* b;
  int operand;
  template <typename Math>
  PANDO_HOST_DEVICE void operator()(Math) const {
    for (int j = 0; j < W; ++j) {
      dy[j] = operand == 0 ? Math::GradA(dy[j], a[j], b[j]) : Math::GradB(dy[j], a[j], b[j]);
    }
  }
};

// Terms for sum_terms.h: what each element of dy contributes.
template <typename T>
struct GradientTerms {
  static constexpr int kOperands = 3;
  static constexpr int kWidth = kPackWidth<T>;
  static constexpr int kAtOnce = 1;
  using C = ComputeType<T>;
  BinaryOp op;
  int operand;
  const T* dy;
  const T* a;  // null where not read
  const T* b;

  PieceGrid<3> Cut(const StridedIndex<3>& index) const {
    return MakePieces(index, kWidth, {dy, a, b});
  }

  unsigned Reads() const { return 1u | (a != nullptr ? 2u : 0u) | (b != nullptr ? 4u : 0u); }

  __device__ void Load(const TermPiece<3>& p, C (&terms)[kWidth]) const {
    C u[kWidth] = {};
    C v[kWidth] = {};
    LoadValues(dy + p.at[0], p.stride[0], p.IsWide(0), p.n, terms);
    if (a != nullptr) LoadValues(a + p.at[1], p.stride[1], p.IsWide(1), p.n, u);
    if (b != nullptr) LoadValues(b + p.at[2], p.stride[2], p.IsWide(2), p.n, v);
    DispatchBinary(op, Gradients<C, kWidth>{terms, u, v, operand});
  }
};

void Backward(const BinaryBackwardArgs& args, void* stream) {
  DispatchFloating("binary backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool reads_a = BinaryGradientReads(args.op, args.operand, 0);
    const bool reads_b = BinaryGradientReads(args.op, args.operand, 1);
    const GradientTerms<T> terms = {args.op, args.operand, static_cast<const T*>(args.dy),
                                    reads_a ? static_cast<const T*>(args.a) : nullptr,
                                    reads_b ? static_cast<const T*>(args.b) : nullptr};
    SumTerms("binary backward", terms, args.index, args.dx, stream);
  });
}

template <CompareOp kOp, int W, typename V>
__device__ inline void CompareValues(const V (&a)[W], const V (&b)[W], int32_t (&y)[W]) {
  for (int j = 0; j < W; ++j) y[j] = Holds<kOp>(a[j], b[j]) ? 1 : 0;
}

template <int W, typename V>
__device__ inline void CompareValues(CompareOp op, const V (&a)[W], const V (&b)[W],
                                     int32_t (&y)[W]) {
  switch (op) {
    case CompareOp::kEqual:
      return CompareValues<CompareOp::kEqual>(a, b, y);
    case CompareOp::kNotEqual:
      return CompareValues<CompareOp::kNotEqual>(a, b, y);
    case CompareOp::kLess:
      return CompareValues<CompareOp::kLess>(a, b, y);
    case CompareOp::kLessEqual:
      return CompareValues<CompareOp::kLessEqual>(a, b, y);
    case CompareOp::kGreater:
      return CompareValues<CompareOp::kGreater>(a, b, y);
    case CompareOp::kGreaterEqual:
      return CompareValues<CompareOp::kGreaterEqual>(a, b, y);
  }
}

template <typename T>
__global__ void CompareForward(CompareOp op, int32_t* y, const T* a, const T* b, PieceGrid<2> grid,
                               bool wide_y) {
  constexpr int kW = kPackWidth<T>;
  for (int64_t i = GridThread(); i < grid.count; i += GridThreads()) {
    const Piece<2> piece = PieceAt(grid, i);
    ValueType<T> u[kW];
    ValueType<T> v[kW];
    LoadValues(a + piece.at[0], PieceStride(grid, 0), IsWide(grid, piece, 0), piece.n, u);
    LoadValues(b + piece.at[1], PieceStride(grid, 1), IsWide(grid, piece, 1), piece.n, v);
    int32_t out[kW] = {};
    CompareValues(op, u, v, out);
    StorePiece(y + piece.first, 1, wide_y && piece.n == kW, piece.n, out);
  }
}

void Compare(const CompareArgs& args, void* stream) {
  DispatchCuda<float, BFloat16, Float16, double, int32_t, int64_t>(
      "compare", args.dtype, [&](auto tag) {
        using T = decltype(tag);
        const PieceGrid<2> grid = MakePieces(args.index, kPackWidth<T>, {args.a, args.b});
        Launch(CompareForward<T>, PieceBlocks(grid.count), kPieceThreads, 0, stream, args.op,
               args.y, static_cast<const T*>(args.a), static_cast<const T*>(args.b), grid,
               IsWideResult(grid, args.y));
      });
}

}  // namespace

const BinaryKernels kCudaBinary = {
    .forward = Forward,
    .backward = Backward,
    .compare = Compare,
};

}  // namespace pando
