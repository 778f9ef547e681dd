// What a program outside the tree includes and links, through public targets only.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "engine/random.h"
#include "engine/types.h"
#include "square.h"

namespace {

TEST(Outside, HeadersAndLibrariesOfEngine) {
  EXPECT_EQ(pando::ToFloat(pando::ToBFloat16(1.0f)), 1.0f);
  EXPECT_EQ(pando::UniformFromBits(0x80000000u), 0.5f);

  std::atomic<int64_t> sum{0};
  pando::ParallelFor(1000, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum += i;
  });
  EXPECT_EQ(sum, 999 * 1000 / 2);

  EXPECT_THROW(throw pando::InvalidArgument("outside"), pando::Error);
}

TEST(Outside, KernelsOfItsOwn) {
  const std::vector<float> x = {-3.0f, 0.5f, 4.0f};
  std::vector<float> y(x.size());
  pando::CpuSquareKernels().forward({x.data(), y.data(), 3}, nullptr);
  EXPECT_EQ(y, (std::vector<float>{9.0f, 0.25f, 16.0f}));
}

}  // namespace
