#pragma once

// The kernel tables of CUDA, each defined in the source of the same name; register.cc registers
// them.

#include "ops/kernels/attention.h"
#include "ops/kernels/binary.h"
#include "ops/kernels/column_sums.h"
#include "ops/kernels/copy.h"
#include "ops/kernels/cross_entropy.h"
#include "ops/kernels/dropout.h"
#include "ops/kernels/embedding.h"
#include "ops/kernels/gelu.h"
#include "ops/kernels/layer_norm.h"
#include "ops/kernels/matmul.h"
#include "ops/kernels/reduce.h"
#include "ops/kernels/softmax.h"
#include "ops/kernels/unary.h"
#include "ops/kernels/where.h"

namespace pando {

extern const AttentionKernels kCudaAttention;
extern const BinaryKernels kCudaBinary;
extern const ColumnSumsKernels kCudaColumnSums;
extern const CopyKernels kCudaCopy;
extern const CrossEntropyKernels kCudaCrossEntropy;
extern const DropoutKernels kCudaDropout;
extern const EmbeddingKernels kCudaEmbedding;
extern const GeluKernels kCudaGelu;
extern const LayerNormKernels kCudaLayerNorm;
extern const MatmulKernels kCudaMatmul;
extern const ReduceKernels kCudaReduce;
extern const SoftmaxKernels kCudaSoftmax;
extern const UnaryKernels kCudaUnary;
extern const WhereKernels kCudaWhere;

}  // namespace pando
