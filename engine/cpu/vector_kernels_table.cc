#include "engine/cpu/isa.h"
#include "engine/cpu/vector_kernels_cpu.h"

namespace pando {

PANDO_DEFINE_CPU_TABLE(VectorKernels, kVectorKernels);

}  // namespace pando
