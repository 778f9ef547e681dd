// Tells every op its kernels on CUDA.
#include "ops/cuda/tables.h"
#include "ops/kernel_tables.h"

namespace pando {
namespace {

bool RegisterAll() {
  attention_kernels.Register(DeviceType::kCuda, kCudaAttention);
  column_sums_kernels.Register(DeviceType::kCuda, kCudaColumnSums);
  cross_entropy_kernels.Register(DeviceType::kCuda, kCudaCrossEntropy);
  dropout_kernels.Register(DeviceType::kCuda, kCudaDropout);
  embedding_kernels.Register(DeviceType::kCuda, kCudaEmbedding);
  gelu_kernels.Register(DeviceType::kCuda, kCudaGelu);
  layer_norm_kernels.Register(DeviceType::kCuda, kCudaLayerNorm);
  matmul_kernels.Register(DeviceType::kCuda, kCudaMatmul);
  softmax_kernels.Register(DeviceType::kCuda, kCudaSoftmax);
  return true;
}

[[maybe_unused]] const bool registered = RegisterAll();

}  // namespace
}  // namespace pando
