// What the table of operations cannot see of cross-entropy's kernels, on whichever device is
// linked: padding, targets to ignore and to report, rows that are not aligned, the fused form to
// the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/kernel_tables.h"
#include "tests/ops/device_array.h"
#include "tests/samples.h"

namespace pando {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kIgnore = -100;
constexpr double kScale = 0.25;
constexpr float kFactor = 0.5f;

struct LogitsShape {
  int64_t rows;
  int64_t vocab;
  int64_t stride;
};

template <typename T>
struct Problem {
  explicit Problem(LogitsShape s, int64_t shift = 0)
      : shape(s), shift(shift), logits(Samples<T>(s.rows * s.stride, 0, 8)), targets(s.rows) {
    for (int64_t r = 0; r < s.rows; ++r) {
      targets[r] = r % 4 == 2 ? kIgnore : static_cast<int32_t>((r * 7919 + 5) % s.vocab);
      // What stands in the padding must not matter.
      for (int64_t c = s.vocab; c < s.stride; ++c) logits[r * s.stride + c] = RoundTo<T>(kInf);
    }
  }

  /// Forward and backward apart, and (in `fused`) at once.
  void Run() {
    const CrossEntropyKernels& kernels = cross_entropy_kernels.For(TestDevice());
    DeviceArray<T> x(logits, shift), dx(shape.rows * shape.stride, shift);
    DeviceArray<int32_t> ids(targets), flags(std::vector<int32_t>{2, 4});
    DeviceArray<float> apart(shape.rows), at_once(shape.rows), logsumexp(shape.rows);
    DeviceArray<float> factor(std::vector<float>{kFactor});
    LaunchOnTestDevice(
        kernels.forward,
        CrossEntropyForwardArgs{x.data(), ids.data(), apart.data(), logsumexp.data(), flags.data(),
                                DTypeOf<T>::value, shape.rows, shape.vocab, shape.stride, kIgnore});
    LaunchOnTestDevice(kernels.backward,
                       CrossEntropyBackwardArgs{x.data(), ids.data(), logsumexp.data(), dx.data(),
                                                DTypeOf<T>::value, shape.rows, shape.vocab,
                                                shape.stride, kIgnore, kScale, factor.data()});
    LaunchOnTestDevice(kernels.fused,
                       CrossEntropyFusedArgs{x.data(), ids.data(), at_once.data(), flags.data() + 1,
                                             DTypeOf<T>::value, shape.rows, shape.vocab,
                                             shape.stride, kIgnore, kScale, factor.data()});
    losses = apart.Values();
    gradient = dx.Values();
    errors = flags.Values();
    PANDO_EXPECT_SAME_BITS(at_once.Values(), losses);
    PANDO_EXPECT_SAME_BITS(x.Values(), gradient);
  }

  LogitsShape shape;
  int64_t shift;
  std::vector<T> logits;
  std::vector<int32_t> targets;
  std::vector<float> losses;
  std::vector<T> gradient;
  std::vector<int32_t> errors;  // of forward, which was 2, and of fused, which was 4
};

template <typename T>
class CrossEntropyDeviceTest : public testing::Test {};
using Types = testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(CrossEntropyDeviceTest, Types);

TYPED_TEST(CrossEntropyDeviceTest, FollowsTheDefinition) {
  using T = TypeParam;
  for (const LogitsShape s : {LogitsShape{0, 5, 8},
                              {1, 1, 1},
                              {7, 13, 16},
                              {3, 1027, 1032},
                              {5, 4099, 4100},
                              {37, 11, 11},
                              {1, 50257, 50304}}) {
    for (const int64_t shift : {0, 1}) {
      Problem<T> p(s, shift);
      p.Run();
      EXPECT_EQ(p.errors, (std::vector<int32_t>{2, 4}));
      std::vector<double> losses(s.rows), gradient(p.logits.size());
      for (int64_t r = 0; r < s.rows; ++r) {
        if (p.targets[r] == kIgnore) continue;
        double sum = 0;
        const T* x = p.logits.data() + r * s.stride;
        for (int64_t c = 0; c < s.vocab; ++c) sum += std::exp(ToFloat(x[c]));
        losses[r] = std::log(sum) - ToFloat(x[p.targets[r]]);
        for (int64_t c = 0; c < s.vocab; ++c) {
          const double one = c == p.targets[r] ? 1 : 0;
          gradient[r * s.stride + c] =
              (std::exp(ToFloat(x[c])) / sum - one) * kScale * double{kFactor};
        }
      }
      ExpectClose(p.losses, losses, 4, 24);
      // The rounding of logsumexp, up to 24, is the error of a probability, times 1/8.
      ExpectClose(p.gradient, gradient, 4, 24.0 / 8);
      for (size_t i = 0; i < gradient.size(); ++i) {
        const bool padding = static_cast<int64_t>(i) % s.stride >= s.vocab;
        const bool ignored = p.targets[i / s.stride] == kIgnore;
        if (padding || ignored) {
          ASSERT_EQ(ToFloat(p.gradient[i]), 0) << i;
        }
      }
    }
  }
}

TYPED_TEST(CrossEntropyDeviceTest, TargetsOutsideTheVocabularyAreReported) {
  for (const int32_t bad : {11, 12, -1, 1 << 30}) {
    Problem<TypeParam> p({4, 11, 16});
    p.targets[1] = bad;
    p.Run();
    EXPECT_EQ(p.errors, (std::vector<int32_t>{3, 5}));
    EXPECT_EQ(p.losses[1], 0.0f);
    EXPECT_GT(p.losses[0], 0.0f);
    for (int c = 0; c < 16; ++c) EXPECT_EQ(ToFloat(p.gradient[16 + c]), 0.0f);
  }
}

TYPED_TEST(CrossEntropyDeviceTest, MinusInfinityExcludesAColumn) {
  Problem<TypeParam> p({1, 4096, 4096});
  p.logits.assign(4096, RoundTo<TypeParam>(-kInf));  // all that many a thread sees
  p.logits[4000] = p.logits[4001] = RoundTo<TypeParam>(3.0f);
  p.targets[0] = 4000;
  p.Run();
  EXPECT_NEAR(p.losses[0], std::log(2.0), 1e-6);
  EXPECT_EQ(ToFloat(p.gradient[0]), 0.0f);
  EXPECT_NEAR(ToFloat(p.gradient[4000]), -0.5 / 8, 1e-7);
  EXPECT_NEAR(ToFloat(p.gradient[4001]), 0.5 / 8, 1e-7);
}

TYPED_TEST(CrossEntropyDeviceTest, NonFiniteLogitsGiveNonFiniteLosses) {
  for (const float bad : {std::nanf(""), kInf}) {
    for (const int64_t shift : {0, 1}) {
      Problem<TypeParam> p({1, 1000, 1000}, shift);
      p.logits[50] = RoundTo<TypeParam>(bad);
      DeviceArray<TypeParam> x(p.logits, shift);
      DeviceArray<int32_t> ids(p.targets), flag(1);
      DeviceArray<float> losses(1);
      LaunchOnTestDevice(
          cross_entropy_kernels.For(TestDevice()).forward,
          CrossEntropyForwardArgs{x.data(), ids.data(), losses.data(), nullptr, flag.data(),
                                  DTypeOf<TypeParam>::value, 1, 1000, 1000, kIgnore});
      EXPECT_FALSE(std::isfinite(losses.Values()[0]));
    }
  }
}

template <typename C>
void CheckLossSum(int64_t rows) {
  const std::vector<C> losses = Samples<C>(rows, 0, 10);
  std::vector<int32_t> targets(rows);
  double want = 0;
  int64_t want_count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    targets[r] = r % 5 == 0 ? kIgnore : static_cast<int32_t>(r % 13);  // 11 and 12 are no targets
    if (targets[r] < 0 || targets[r] >= 11) continue;
    want += losses[r];
    ++want_count;
  }
  DeviceArray<C> values(losses);
  DeviceArray<int32_t> ids(targets);
  DeviceArray<double> sum(std::vector<double>{1.0});
  DeviceArray<int64_t> count(std::vector<int64_t>{1});
  for (const bool accumulate : {false, true}) {
    LaunchOnTestDevice(cross_entropy_kernels.For(TestDevice()).loss_sum,
                       LossSumArgs{values.data(), ids.data(), sum.data(), count.data(), accumulate,
                                   DTypeOf<C>::value, rows, 11, kIgnore});
    // f64 sums in another order.
    EXPECT_NEAR(sum.Values()[0], want * (accumulate ? 2 : 1), 1e-12 * static_cast<double>(rows));
    EXPECT_EQ(count.Values()[0], want_count * (accumulate ? 2 : 1));
  }
}

TEST(LossSumDeviceTest, SumsWhatCounts) {
  for (const int64_t rows : {0, 1, 37, 3001}) {
    CheckLossSum<float>(rows);
    CheckLossSum<double>(rows);
  }
}

}  // namespace
}  // namespace pando
