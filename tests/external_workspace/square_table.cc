#include "engine/cpu/isa.h"
#include "square.h"

namespace pando {

PANDO_DEFINE_CPU_TABLE(SquareKernels, kSquare);

}  // namespace pando
