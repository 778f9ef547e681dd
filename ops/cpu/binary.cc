#include "ops/kernels/binary.h"

#include "ops/binary_math.h"
#include "ops/cpu/sum_terms.h"

namespace pando::PANDO_ISA {
namespace {

// One inner loop per operation and type; what walks over the pieces is compiled once per type, and
// calls it by pointer.
template <typename V, typename Y>
using PieceLoop = void (*)(const V* a, const V* b, int64_t n, Y* y);

// y = loop(a, b), broadcast.
template <typename T, typename Y>
void ForEachPiece(const void* a_data, const void* b_data, Y* y, const StridedIndex<2>& index,
                  PieceLoop<typename RowValue<T>::type, Y> loop) {
  using V = typename RowValue<T>::type;
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  ParallelFor(Count(index), kGrain, [&](int64_t begin, int64_t end) {
    ForPieces(index, begin, end, [&](int64_t first, const int64_t* offset, int64_t n) {
      V a_buffer[kPiece];
      V b_buffer[kPiece];
      loop(RowValues(a + offset[0], RowStride(index, 0), n, a_buffer),
           RowValues(b + offset[1], RowStride(index, 1), n, b_buffer), n, y + first);
    });
  });
}

template <typename T, typename Math>
void ValueLoop(const ComputeType<T>* a, const ComputeType<T>* b, int64_t n, T* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = RoundTo<T>(Math::Value(a[i], b[i]));
}

void Forward(const BinaryArgs& args, void* /*stream*/) {
  DispatchFloating("binary", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    PieceLoop<ComputeType<T>, T> loop = nullptr;
    DispatchBinary(args.op, [&](auto math) { loop = ValueLoop<T, decltype(math)>; });
    ForEachPiece<T>(args.a, args.b, static_cast<T*>(args.y), args.index, loop);
  });
}

template <typename C>
using GradientLoop = void (*)(const C* dy, const C* a, const C* b, int64_t n, C* terms);

template <typename C, typename Math, int kOperand>
void GradLoop(const C* dy, const C* a, const C* b, int64_t n, C* terms) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    terms[i] = kOperand == 0 ? Math::GradA(dy[i], a[i], b[i]) : Math::GradB(dy[i], a[i], b[i]);
  }
}

// The sum of loop(dy, a, b), where what the operation doesn't read is left out.
template <typename T>
void SumGradient(const BinaryBackwardArgs& args, GradientLoop<ComputeType<T>> loop) {
  using C = ComputeType<T>;
  const T* dy = static_cast<const T*>(args.dy);
  const T* a = static_cast<const T*>(args.a);
  const T* b = static_cast<const T*>(args.b);
  const bool reads_a = BinaryGradientReads(args.op, args.operand, 0);
  const bool reads_b = BinaryGradientReads(args.op, args.operand, 1);
  const auto terms = [&](const int64_t* offset, const int64_t* stride, int64_t n,
                         C* buffer) -> const C* {
    C a_buffer[kPiece];
    C b_buffer[kPiece];
    const C* g = RowValues(dy + offset[0], stride[0], n, buffer);
    loop(g, reads_a ? RowValues(a + offset[1], stride[1], n, a_buffer) : g,
         reads_b ? RowValues(b + offset[2], stride[2], n, b_buffer) : g, n, buffer);
    return buffer;
  };
  SumTerms<3, C>(args.index, terms, args.dx);
}

void Backward(const BinaryBackwardArgs& args, void* /*stream*/) {
  DispatchFloating("binary backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = ComputeType<T>;
    GradientLoop<C> loop = nullptr;
    DispatchBinary(args.op, [&](auto math) {
      using Math = decltype(math);
      loop = args.operand == 0 ? GradLoop<C, Math, 0> : GradLoop<C, Math, 1>;
    });
    SumGradient<T>(args, loop);
  });
}

template <typename V, CompareOp kOp>
void CompareLoop(const V* a, const V* b, int64_t n, int32_t* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Holds<kOp>(a[i], b[i]) ? 1 : 0;
}

template <typename V>
PieceLoop<V, int32_t> CompareLoopOf(CompareOp op) {
  switch (op) {
    case CompareOp::kEqual:
      return CompareLoop<V, CompareOp::kEqual>;
    case CompareOp::kNotEqual:
      return CompareLoop<V, CompareOp::kNotEqual>;
    case CompareOp::kLess:
      return CompareLoop<V, CompareOp::kLess>;
    case CompareOp::kLessEqual:
      return CompareLoop<V, CompareOp::kLessEqual>;
    case CompareOp::kGreater:
      return CompareLoop<V, CompareOp::kGreater>;
    case CompareOp::kGreaterEqual:
      return CompareLoop<V, CompareOp::kGreaterEqual>;
  }
  return nullptr;
}

void Compare(const CompareArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double, int32_t, int64_t>(
      "compare", args.dtype, [&](auto tag) {
        using T = decltype(tag);
        ForEachPiece<T>(args.a, args.b, args.y, args.index,
                        CompareLoopOf<typename RowValue<T>::type>(args.op));
      });
}

}  // namespace

extern const BinaryKernels kBinaryKernels;
const BinaryKernels kBinaryKernels = {
    .forward = Forward,
    .backward = Backward,
    .compare = Compare,
};

}  // namespace pando::PANDO_ISA
