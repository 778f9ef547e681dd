#pragma once

#include <cuda_runtime_api.h>

namespace pando {

/// Throws DeviceError with `what` was tried and CUDA's own words.
[[noreturn]] void ThrowCudaError(cudaError_t error, const char* what);

/// Throws DeviceError unless `error` is cudaSuccess.
inline void CheckCuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) ThrowCudaError(error, what);
}

}  // namespace pando
