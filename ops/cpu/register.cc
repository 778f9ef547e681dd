// Tells every op its kernels on the CPU.
#include "ops/cpu/attention_cpu.h"
#include "ops/cpu/basic_kernels_cpu.h"
#include "ops/cpu/matmul_cpu.h"
#include "ops/cpu/row_kernels_cpu.h"
#include "ops/kernel_tables.h"

namespace pando {
namespace {

bool RegisterAll() {
  constexpr DeviceType kCpu = DeviceType::kCpu;
  attention_kernels.Register(kCpu, CpuAttentionKernels());
  binary_kernels.Register(kCpu, CpuBinaryKernels());
  column_sums_kernels.Register(kCpu, CpuColumnSumsKernels());
  copy_kernels.Register(kCpu, CpuCopyKernels());
  cross_entropy_kernels.Register(kCpu, CpuCrossEntropyKernels());
  dropout_kernels.Register(kCpu, CpuDropoutKernels());
  embedding_kernels.Register(kCpu, CpuEmbeddingKernels());
  gelu_kernels.Register(kCpu, CpuGeluKernels());
  layer_norm_kernels.Register(kCpu, CpuLayerNormKernels());
  matmul_kernels.Register(kCpu, CpuMatmulKernels());
  reduce_kernels.Register(kCpu, CpuReduceKernels());
  softmax_kernels.Register(kCpu, CpuSoftmaxKernels());
  unary_kernels.Register(kCpu, CpuUnaryKernels());
  where_kernels.Register(kCpu, CpuWhereKernels());
  return true;
}

[[maybe_unused]] const bool kRegistered = RegisterAll();

}  // namespace
}  // namespace pando
