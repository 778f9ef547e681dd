#include "ops/kernels/where.h"

#include "ops/cuda/sum_terms.h"
#include "ops/cuda/tables.h"

namespace pando {
namespace {

template <typename U>
__global__ void __launch_bounds__(kPieceThreads, 4)
    WhereForward(U* y, const int32_t* cond, const U* a, const U* b, PieceGrid<3> grid,
                 bool wide_y) {
  constexpr int kW = kPackWidth<U>;
  for (int64_t i = GridThread(); i < grid.count; i += GridThreads()) {
    const Piece<3> piece = PieceAt(grid, i);
    int32_t c[kW];
    U u[kW];
    U v[kW];
    LoadPiece(cond + piece.at[0], PieceStride(grid, 0), IsWide(grid, piece, 0), piece.n, c);
    LoadPiece(a + piece.at[1], PieceStride(grid, 1), IsWide(grid, piece, 1), piece.n, u);
    LoadPiece(b + piece.at[2], PieceStride(grid, 2), IsWide(grid, piece, 2), piece.n, v);
    for (int j = 0; j < kW; ++j) u[j] = c[j] != 0 ? u[j] : v[j];
    StorePiece(y + piece.first, 1, wide_y && piece.n == kW, piece.n, u);
  }
}

void Forward(const WhereArgs& args, void* stream) {
  DispatchSize(args.dtype, [&](auto tag) {
    using U = decltype(tag);
    const PieceGrid<3> grid = MakePieces(args.index, kPackWidth<U>, {args.cond, args.a, args.b});
    Launch(WhereForward<U>, PieceBlocks(grid.count), kPieceThreads, 0, stream,
           static_cast<U*>(args.y), args.cond, static_cast<const U*>(args.a),
           static_cast<const U*>(args.b), grid, IsWideResult(grid, args.y));
  });
}

// Terms for sum_terms.h: dy where the operand was taken.
template <typename T>
struct TakenTerms {
  static constexpr int kOperands = 2;
  static constexpr int kWidth = kPackWidth<T>;
  static constexpr int kAtOnce = 1;
  using C = ComputeType<T>;
  bool taken;  // by which conditions
  const T* dy;
  const int32_t* cond;

  PieceGrid<2> Cut(const StridedIndex<2>& index) const {
    return MakePieces(index, kWidth, {dy, cond});
  }

  unsigned Reads() const { return 3; }

  __device__ void Load(const TermPiece<2>& p, C (&terms)[kWidth]) const {
    int32_t c[kWidth];
    LoadValues(dy + p.at[0], p.stride[0], p.IsWide(0), p.n, terms);
    LoadPiece(cond + p.at[1], p.stride[1], p.IsWide(1), p.n, c);
    for (int j = 0; j < kWidth; ++j) terms[j] = (c[j] != 0) == taken ? terms[j] : C(0);
  }
};

void Backward(const WhereBackwardArgs& args, void* stream) {
  DispatchFloating("where backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const TakenTerms<T> terms = {args.operand == 0, static_cast<const T*>(args.dy), args.cond};
    SumTerms("where backward", terms, args.index, args.dx, stream);
  });
}

}  // namespace

const WhereKernels kCudaWhere = {
    .forward = Forward,
    .backward = Backward,
};

}  // namespace pando
