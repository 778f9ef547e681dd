// Tells every op its kernels on CUDA.
#include "ops/cuda/tables.h"
#include "ops/kernel_tables.h"

namespace pando {
namespace {

bool RegisterAll() {
  attention_kernels.Register(DeviceType::kCuda, kCudaAttention);
  matmul_kernels.Register(DeviceType::kCuda, kCudaMatmul);
  return true;
}

[[maybe_unused]] const bool registered = RegisterAll();

}  // namespace
}  // namespace pando
