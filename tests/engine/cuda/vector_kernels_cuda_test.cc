// The vector kernels on cuda:0, a GPU or an emulated one, in memory of which every overrun shows.
#include <gtest/gtest.h>

#include "engine/allocator.h"
#include "engine/cuda/cuda_device.h"
#include "tests/engine/vector_kernels_suite.h"

namespace pando {
namespace {

std::vector<VectorKernelsCase> CudaCases() {
  if (CudaDeviceCount() == 0) return {};
  Device& device = CudaDevice(0);
  device.allocator().SetDirect(true);
  return {{"cuda", &device, &device.vector_kernels()}};
}

INSTANTIATE_TEST_SUITE_P(Cuda, VectorKernelsTest, testing::ValuesIn(CudaCases()),
                         VectorKernelsCaseName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VectorKernelsTest);

}  // namespace
}  // namespace pando
