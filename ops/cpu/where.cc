#include "ops/kernels/where.h"

#include "ops/cpu/sum_terms.h"

namespace pando::PANDO_ISA {
namespace {

template <typename T>
void ForwardTyped(const WhereArgs& args) {
  const T* a = static_cast<const T*>(args.a);
  const T* b = static_cast<const T*>(args.b);
  const StridedIndex<3>& index = args.index;
  ParallelFor(Count(index), kGrain, [&](int64_t begin, int64_t end) {
    ForPieces(index, begin, end, [&](int64_t first, const int64_t* offset, int64_t n) {
      int32_t cond_buffer[kPiece];
      T a_buffer[kPiece];
      T b_buffer[kPiece];
      const int32_t* c = RowValues(args.cond + offset[0], RowStride(index, 0), n, cond_buffer);
      const T* u = RowValues(a + offset[1], RowStride(index, 1), n, a_buffer);
      const T* v = RowValues(b + offset[2], RowStride(index, 2), n, b_buffer);
      T* to = static_cast<T*>(args.y) + first;
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) {
        const T taken = u[i];
        const T other = v[i];
        to[i] = c[i] != 0 ? taken : other;
      }
    });
  });
}

void Forward(const WhereArgs& args, void* /*stream*/) {
  DispatchSize(args.dtype, [&](auto tag) { ForwardTyped<decltype(tag)>(args); });
}

void Backward(const WhereBackwardArgs& args, void* /*stream*/) {
  DispatchFloating("where backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = ComputeType<T>;
    const T* dy = static_cast<const T*>(args.dy);
    const bool taken = args.operand == 0;
    const auto terms = [&](const int64_t* offset, const int64_t* stride, int64_t n,
                           C* buffer) -> const C* {
      int32_t cond_buffer[kPiece];
      const C* g = RowValues(dy + offset[0], stride[0], n, buffer);
      const int32_t* c = RowValues(args.cond + offset[1], stride[1], n, cond_buffer);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) {
        const C value = g[i];
        buffer[i] = (c[i] != 0) == taken ? value : C{0};
      }
      return buffer;
    };
    SumTerms<2, C>(args.index, terms, args.dx);
  });
}

}  // namespace

extern const WhereKernels kWhereKernels;
const WhereKernels kWhereKernels = {
    .forward = Forward,
    .backward = Backward,
};

}  // namespace pando::PANDO_ISA
