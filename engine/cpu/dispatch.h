#pragma once

// From a DType at run time to a kernel template's element type.

#include "engine/types.h"

namespace pando {

/// Throws InvalidArgument: a kernel was called with a dtype that its table does not document. The
/// callers check and name operation and shapes; this is the last line.
[[noreturn]] void UnsupportedDType(const char* kernel, DType dtype);

namespace PANDO_ISA {

/// Calls body(T{}) with the one T of the list whose DType is `dtype`.
template <typename T, typename... Rest, typename Body>
void Dispatch(const char* kernel, DType dtype, const Body& body) {
  if (dtype == DTypeOf<T>::value) {
    body(T{});
  } else if constexpr (sizeof...(Rest) > 0) {
    Dispatch<Rest...>(kernel, dtype, body);
  } else {
    UnsupportedDType(kernel, dtype);
  }
}

}  // namespace PANDO_ISA
}  // namespace pando
