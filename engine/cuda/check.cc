#include "engine/cuda/check.h"

#include "engine/error.h"

namespace pando {

void ThrowCudaError(cudaError_t error, const char* what) {
  throw DeviceError(absl::StrCat("cuda: ", what, ": ", cudaGetErrorString(error), " (",
                                 cudaGetErrorName(error), ")"));
}

}  // namespace pando
