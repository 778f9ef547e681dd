#include "engine/cuda/dispatch.h"

#include "engine/error.h"

namespace pando {

void ThrowUnsupportedOnCuda(const char* kernel, DType dtype) {
  throw InvalidArgument(absl::StrCat(kernel, ": there is no CUDA kernel for ", Name(dtype)));
}

}  // namespace pando
