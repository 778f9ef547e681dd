#pragma once

// The tests of a table of vector kernels, for every device: a program instantiates
// VectorKernelsTest with its tables.

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "engine/device.h"

namespace pando {

/// A table, and the device that it works on.
struct VectorKernelsCase {
  std::string name;
  Device* device;
  const VectorKernels* table;
};

class VectorKernelsTest : public testing::TestWithParam<VectorKernelsCase> {
 protected:
  const VectorKernels& kernels() const { return *GetParam().table; }
  Device& device() const { return *GetParam().device; }

  template <typename Args>
  void Launch(Kernel<Args> kernel, const std::type_identity_t<Args>& args) {
    device().current_stream().Launch(kernel, args);
  }

  template <typename Y, typename X>
  void CheckAxpy();
  template <typename T>
  void CheckScale();
  template <typename Y, typename X>
  void CheckCast();
  template <typename Y>
  void CheckCastsTo();
  template <typename T>
  void CheckSumSquares();
  template <typename T>
  void CheckNonFinite(int64_t offset);
};

/// Names a test after its table.
inline std::string VectorKernelsCaseName(const testing::TestParamInfo<VectorKernelsCase>& info) {
  return info.param.name;
}

}  // namespace pando
