#include "engine/cpu/isa.h"
#include "ops/cpu/attention_cpu.h"

namespace pando {

PANDO_DEFINE_CPU_TABLE(AttentionKernels, kAttention);

}  // namespace pando
