// Tells every op its kernels on CUDA.
#include "ops/cuda/tables.h"
#include "ops/kernel_tables.h"

namespace pando {
namespace {

bool RegisterAll() {
  constexpr DeviceType kCuda = DeviceType::kCuda;
  attention_kernels.Register(kCuda, kCudaAttention);
  binary_kernels.Register(kCuda, kCudaBinary);
  column_sums_kernels.Register(kCuda, kCudaColumnSums);
  copy_kernels.Register(kCuda, kCudaCopy);
  cross_entropy_kernels.Register(kCuda, kCudaCrossEntropy);
  dropout_kernels.Register(kCuda, kCudaDropout);
  embedding_kernels.Register(kCuda, kCudaEmbedding);
  gelu_kernels.Register(kCuda, kCudaGelu);
  layer_norm_kernels.Register(kCuda, kCudaLayerNorm);
  matmul_kernels.Register(kCuda, kCudaMatmul);
  reduce_kernels.Register(kCuda, kCudaReduce);
  softmax_kernels.Register(kCuda, kCudaSoftmax);
  unary_kernels.Register(kCuda, kCudaUnary);
  where_kernels.Register(kCuda, kCudaWhere);
  return true;
}

[[maybe_unused]] const bool kRegistered = RegisterAll();

}  // namespace
}  // namespace pando
