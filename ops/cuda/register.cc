// Tells every op its kernels on CUDA.
#include "ops/cuda/tables.h"
#include "ops/kernel_tables.h"

namespace pando {
namespace {

bool RegisterAll() {
  matmul_kernels.Register(DeviceType::kCuda, kCudaMatmul);
  return true;
}

[[maybe_unused]] const bool registered = RegisterAll();

}  // namespace
}  // namespace pando
