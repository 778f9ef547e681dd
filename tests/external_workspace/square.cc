// A kernel of a program's own, compiled for every instruction-set level.
#include "square.h"

#include "engine/cpu/parallel.h"

namespace pando::PANDO_ISA {
namespace {

void Square(const SquareArgs& args, void*) {
  ParallelFor(args.n, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) args.y[i] = args.x[i] * args.x[i];
  });
}

}  // namespace

extern const SquareKernels kSquare = {Square};

}  // namespace pando::PANDO_ISA
