// What programs find on a machine without a GPU, whether they were built with CUDA or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cuda/cuda_device.h"
#include "engine/error.h"

namespace pando {
namespace {

TEST(NoGpu, IsSaidNotCrashed) {
  if (CudaDeviceCount() > 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(CudaDeviceCount(), 0);
  EXPECT_FALSE(WhyNoCuda().empty());
  EXPECT_THAT([] { CudaDevice(0); },
              ::testing::ThrowsMessage<InvalidArgument>("cuda:0: " + WhyNoCuda()));
  EXPECT_THROW(DescribeCudaDevice(1), InvalidArgument);
}

TEST(CudaDescription, IsOneLine) {
  EXPECT_EQ(ToString(CudaDescription{"NVIDIA X", 75, int64_t{24} << 30, 80}),
            "NVIDIA X, compute capability 7.5, 80 multiprocessors, 24.0 GiB");
}

}  // namespace
}  // namespace pando
