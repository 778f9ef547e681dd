#include "engine/cpu/isa.h"
#include "ops/cpu/row_kernels_cpu.h"

namespace pando {

PANDO_DEFINE_CPU_TABLE(ColumnSumsKernels, kColumnSums);
PANDO_DEFINE_CPU_TABLE(CrossEntropyKernels, kCrossEntropy);
PANDO_DEFINE_CPU_TABLE(DropoutKernels, kDropout);
PANDO_DEFINE_CPU_TABLE(EmbeddingKernels, kEmbedding);
PANDO_DEFINE_CPU_TABLE(GeluKernels, kGelu);
PANDO_DEFINE_CPU_TABLE(LayerNormKernels, kLayerNorm);
PANDO_DEFINE_CPU_TABLE(SoftmaxKernels, kSoftmax);

}  // namespace pando
