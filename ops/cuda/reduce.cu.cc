#include "ops/kernels/reduce.h"

#include "ops/cuda/max.h"
#include "ops/cuda/sum_terms.h"
#include "ops/cuda/tables.h"

namespace pando {
namespace {

// Terms for sum_terms.h: x itself.
template <typename T>
struct ElementTerms {
  static constexpr int kOperands = 1;
  static constexpr int kWidth = kPackWidth<T>;
  static constexpr int kAtOnce = 2;
  using C = ComputeType<T>;
  const T* x;

  PieceGrid<1> Cut(const StridedIndex<1>& index) const { return MakePieces(index, kWidth, {x}); }

  unsigned Reads() const { return 1; }

  __device__ void Load(const TermPiece<1>& p, C (&terms)[kWidth]) const {
    LoadValues(x + p.at[0], p.stride[0], p.IsWide(0), p.n, terms);
  }
};

void Sum(const SumArgs& args, void* stream) {
  DispatchFloating("sum", args.dtype, [&](auto tag) {
    const ElementTerms<decltype(tag)> terms = {static_cast<const decltype(tag)*>(args.x)};
    SumTerms("sum", terms, args.index, args.output, stream);
  });
}

__global__ void AddPartsInOrder(SumOutput out, int64_t outputs, int64_t parts) {
  for (int64_t i = GridThread(); i < outputs; i += GridThreads()) {
    double sum[1] = {};
    for (int64_t part = 0; part < parts; ++part) sum[0] += out.scratch[part * outputs + i];
    StoreSums(out, i, false, 1, sum);
  }
}

}  // namespace

void AddParts(const SumOutput& out, int64_t outputs, int64_t parts, void* stream) {
  constexpr unsigned kThreads = 64;  // outputs are few: over more multiprocessors
  Launch(AddPartsInOrder, GridFor(outputs, kThreads), kThreads, 0, stream, out, outputs, parts);
}

const ReduceKernels kCudaReduce = {
    .sum = Sum,
    .max = CudaMax,
    .max_backward = CudaMaxBackward,
};

}  // namespace pando
