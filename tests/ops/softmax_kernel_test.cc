#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/kernels/softmax.h"
#include "tests/isa_tables.h"
#include "tests/samples.h"

namespace pando {
namespace {

const RowShape kShapes[] = {{0, 5}, {3, 0}, {1, 1}, {7, 13}, {2, 5003}, {1031, 3}};

class SoftmaxKernelTest : public testing::TestWithParam<IsaTable<SoftmaxKernels>> {
 protected:
  template <typename T>
  std::vector<T> Forward(const std::vector<T>& x, RowShape s) const {
    std::vector<T> y(x.size());
    kernels().forward({x.data(), y.data(), DTypeOf<T>::value, s.rows, s.cols}, nullptr);
    return y;
  }
  template <typename T>
  std::vector<T> Backward(const std::vector<T>& y, const std::vector<T>& dy, RowShape s) const {
    std::vector<T> dx(y.size());
    kernels().backward({y.data(), dy.data(), dx.data(), DTypeOf<T>::value, s.rows, s.cols},
                       nullptr);
    return dx;
  }
  template <typename T>
  void CheckForward() const;
  template <typename T>
  void CheckBackward() const;
  const SoftmaxKernels& kernels() const { return *GetParam().table; }
};

template <typename T>
void SoftmaxKernelTest::CheckForward() const {
  for (RowShape s : kShapes) {
    const std::vector<T> x = Samples<T>(s.rows * s.cols, 0, 20);
    std::vector<double> want(x.size());
    for (int64_t r = 0; r < s.rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < s.cols; ++c) sum += std::exp(ToFloat(x[r * s.cols + c]));
      for (int64_t c = 0; c < s.cols; ++c) {
        want[r * s.cols + c] = std::exp(ToFloat(x[r * s.cols + c])) / sum;
      }
    }
    std::vector<T> y = Forward(x, s);
    ExpectClose(y, want, 10, 1);
    std::vector<T> in_place = x;
    kernels().forward({in_place.data(), in_place.data(), DTypeOf<T>::value, s.rows, s.cols},
                      nullptr);
    PANDO_EXPECT_SAME_BITS(in_place, y);
    const WithThreads one(1);
    PANDO_EXPECT_SAME_BITS(Forward(x, s), y);
  }
}

TEST_P(SoftmaxKernelTest, ForwardFollowsTheDefinition) {
  CheckForward<float>();
  CheckForward<BFloat16>();
  CheckForward<Float16>();
  CheckForward<double>();
}

TEST_P(SoftmaxKernelTest, ForwardSurvivesExtremeRows) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {-inf, 1e30f, -1e30f, -3e38f, -3e38f, -inf};
  const std::vector<float> y = Forward(x, {2, 3});
  EXPECT_EQ(y, (std::vector<float>{0, 1, 0, 0.5, 0.5, 0}));
}

TEST_P(SoftmaxKernelTest, BackwardIsTheSlopeOfForward) {
  const RowShape s{3, 11};
  std::vector<double> x = Samples<double>(33, 0, 3);
  const std::vector<double> dy = Samples<double>(33, 50);
  const std::vector<double> dx = Backward(Forward(x, s), dy, s);
  ExpectSlopes(
      dx, x, [&] { return Dot(Forward(x, s), dy); }, 1e-8);
}

template <typename T>
void SoftmaxKernelTest::CheckBackward() const {
  for (RowShape s : kShapes) {
    const std::vector<T> y = Forward(Samples<T>(s.rows * s.cols, 0, 5), s);
    const std::vector<T> dy = Samples<T>(s.rows * s.cols, 99);
    std::vector<T> dx = Backward(y, dy, s);
    ExpectClose(dx, Backward(Doubles(y), Doubles(dy), s), 10, 1);
    const WithThreads one(1);
    PANDO_EXPECT_SAME_BITS(Backward(y, dy, s), dx);
  }
}

TEST_P(SoftmaxKernelTest, BackwardInEveryDTypeIsThatInDouble) {
  CheckBackward<float>();
  CheckBackward<BFloat16>();
  CheckBackward<Float16>();
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(SoftmaxKernelTest, SoftmaxKernels, kSoftmax);

}  // namespace pando
