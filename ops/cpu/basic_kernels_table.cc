#include "engine/cpu/isa.h"
#include "ops/cpu/basic_kernels_cpu.h"

namespace pando {

PANDO_DEFINE_CPU_TABLE(BinaryKernels, kBinaryKernels);
PANDO_DEFINE_CPU_TABLE(CopyKernels, kCopyKernels);
PANDO_DEFINE_CPU_TABLE(ReduceKernels, kReduceKernels);
PANDO_DEFINE_CPU_TABLE(UnaryKernels, kUnaryKernels);
PANDO_DEFINE_CPU_TABLE(WhereKernels, kWhereKernels);

}  // namespace pando
