#pragma once

// From a DType at run time to a kernel template's element type, on the host.

#include "engine/types.h"

namespace pando {

/// Throws InvalidArgument: the kernel has no instance for `dtype` on CUDA.
[[noreturn]] void ThrowUnsupportedOnCuda(const char* kernel, DType dtype);

/// Calls body(T{}) with the one T of the list whose DType is `dtype`; throws InvalidArgument if
/// there is none.
template <typename T, typename... Rest, typename Body>
void DispatchCuda(const char* kernel, DType dtype, const Body& body) {
  if (dtype == DTypeOf<T>::value) {
    body(T{});
  } else if constexpr (sizeof...(Rest) > 0) {
    DispatchCuda<Rest...>(kernel, dtype, body);
  } else {
    ThrowUnsupportedOnCuda(kernel, dtype);
  }
}

}  // namespace pando
