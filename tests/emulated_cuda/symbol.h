#pragma once

#include <string>

namespace emulated_cuda {

/// The demangled name of the function at `address`, of any linkage, from the symbols of the program
/// or library that holds it; the address in hexadecimal if they were stripped.
std::string FunctionName(const void* address);

}  // namespace emulated_cuda
