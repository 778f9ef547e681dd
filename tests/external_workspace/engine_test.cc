// What a program outside the tree includes and links, through public targets only.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "engine/random.h"
#include "engine/types.h"

namespace {

TEST(Outside, HeadersAndLibrariesOfEngine) {
  EXPECT_EQ(pando::ToFloat(pando::ToBFloat16(1.0f)), 1.0f);

  std::atomic<int64_t> sum{0};
  pando::ParallelFor(1000, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum += i;
  });
  EXPECT_EQ(sum, 999 * 1000 / 2);

  EXPECT_THROW(throw pando::InvalidArgument("outside"), pando::Error);
}

}  // namespace
