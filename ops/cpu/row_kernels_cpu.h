#pragma once

#include "ops/kernels/column_sums.h"
#include "ops/kernels/cross_entropy.h"
#include "ops/kernels/dropout.h"
#include "ops/kernels/embedding.h"
#include "ops/kernels/gelu.h"
#include "ops/kernels/layer_norm.h"
#include "ops/kernels/softmax.h"

namespace pando {

// The CPU's tables, for this processor's instruction set.
const ColumnSumsKernels& CpuColumnSumsKernels();
const CrossEntropyKernels& CpuCrossEntropyKernels();
const DropoutKernels& CpuDropoutKernels();
const EmbeddingKernels& CpuEmbeddingKernels();
const GeluKernels& CpuGeluKernels();
const LayerNormKernels& CpuLayerNormKernels();
const SoftmaxKernels& CpuSoftmaxKernels();

}  // namespace pando
