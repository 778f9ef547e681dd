// Runs the tests where there is a GPU; elsewhere says why not.
#include <gtest/gtest.h>

#include <iostream>

#include "engine/cuda/cuda_device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (pando::CudaDeviceCount() == 0) {
    std::cout << "[  SKIPPED ] no GPU: " << pando::WhyNoCuda() << "\n";
    return 0;
  }
  return RUN_ALL_TESTS();
}
