#include <string>

#include "engine/error.h"
#include "engine/types.h"

namespace pando {

[[noreturn]] void UnsupportedDType(const char* kernel, DType dtype) {
  throw InvalidArgument(std::string(kernel) + ": no kernel for dtype " + Name(dtype));
}

}  // namespace pando
