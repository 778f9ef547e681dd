#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/kernels/cross_entropy.h"
#include "tests/isa_tables.h"
#include "tests/samples.h"

namespace pando {
namespace {

constexpr int32_t kIgnore = -100;

struct Shape {
  int64_t rows;
  int64_t vocab;
  int64_t stride;
};
// Padding or none, and more than one block of columns.
const Shape kShapes[] = {{0, 5, 8}, {1, 1, 1}, {7, 13, 16}, {5, 4099, 4100}, {37, 11, 11}};

template <typename T>
struct Problem {
  using C = ComputeType<T>;
  explicit Problem(Shape s)
      : shape(s),
        logits(Samples<T>(s.rows * s.stride, 0, 8)),
        targets(s.rows),
        losses(s.rows, C(-1)),
        logsumexp(s.rows),
        dlogits(logits.size()) {
    for (int64_t r = 0; r < s.rows; ++r) {
      targets[r] = r % 4 == 2 ? kIgnore : static_cast<int32_t>((r * 7919 + 5) % s.vocab);
      // What stands in the padding must not matter.
      for (int64_t c = s.vocab; c < s.stride; ++c) {
        logits[r * s.stride + c] = RoundTo<T>(std::numeric_limits<C>::infinity());
      }
    }
  }

  void Forward(const CrossEntropyKernels& kernels) {
    kernels.forward({logits.data(), targets.data(), losses.data(), logsumexp.data(), &error,
                     DTypeOf<T>::value, shape.rows, shape.vocab, shape.stride, kIgnore},
                    nullptr);
  }
  void Backward(const CrossEntropyKernels& kernels) {
    kernels.backward(
        {logits.data(), targets.data(), logsumexp.data(), dlogits.data(), DTypeOf<T>::value,
         shape.rows, shape.vocab, shape.stride, kIgnore, scale, &factor},
        nullptr);
  }
  void Fused(const CrossEntropyKernels& kernels) {
    kernels.fused({logits.data(), targets.data(), losses.data(), &error, DTypeOf<T>::value,
                   shape.rows, shape.vocab, shape.stride, kIgnore, scale, &factor},
                  nullptr);
  }

  Shape shape;
  std::vector<T> logits;
  std::vector<int32_t> targets;
  std::vector<C> losses, logsumexp;
  std::vector<T> dlogits;
  int32_t error = 0;
  double scale = 0.25;
  float factor = 0.5f;
};

class CrossEntropyKernelTest : public testing::TestWithParam<IsaTable<CrossEntropyKernels>> {
 protected:
  const CrossEntropyKernels& kernels() const { return *GetParam().table; }
};

template <typename T>
void CheckForward(const CrossEntropyKernels& kernels) {
  for (Shape s : kShapes) {
    Problem<T> p(s);
    p.Forward(kernels);
    EXPECT_EQ(p.error, 0);
    std::vector<double> want(s.rows);
    for (int64_t r = 0; r < s.rows; ++r) {
      if (p.targets[r] == kIgnore) continue;
      double sum = 0;
      for (int64_t c = 0; c < s.vocab; ++c) sum += std::exp(ToFloat(p.logits[r * s.stride + c]));
      want[r] = std::log(sum) - ToFloat(p.logits[r * s.stride + p.targets[r]]);
    }
    ExpectClose(p.losses, want, 4, 16);
  }
}

TEST_P(CrossEntropyKernelTest, LossFollowsTheDefinition) {
  CheckForward<float>(kernels());
  CheckForward<BFloat16>(kernels());
  CheckForward<Float16>(kernels());
  CheckForward<double>(kernels());
}

TEST_P(CrossEntropyKernelTest, BackwardIsTheSlopeOfForward) {
  Problem<double> p({5, 11, 13});
  p.Forward(kernels());
  p.Backward(kernels());
  const auto loss = [&] {
    Problem<double> q = p;
    q.Forward(kernels());
    double sum = 0;
    for (double l : q.losses) sum += l * 0.25 * 0.5;
    return sum;
  };
  for (size_t i = 0; i < p.logits.size(); ++i) {
    if (static_cast<int64_t>(i) % 13 >= 11) {
      EXPECT_EQ(p.dlogits[i], 0);  // padding
    } else {
      EXPECT_NEAR(p.dlogits[i], Slope(p.logits, i, loss), 1e-8);
    }
  }
}

template <typename T>
void CheckBackward(const CrossEntropyKernels& kernels) {
  for (Shape s : kShapes) {
    Problem<T> p(s);
    Problem<double> q(s);
    q.logits = Doubles(p.logits);
    p.Forward(kernels);
    q.Forward(kernels);
    p.Backward(kernels);
    q.Backward(kernels);
    // The rounding of logsumexp, up to 16, is the error of a probability, times 1/8.
    ExpectClose(p.dlogits, Doubles(q.dlogits), 4, 16.0 / 8);
  }
}

TEST_P(CrossEntropyKernelTest, BackwardInEveryDTypeIsThatInDouble) {
  CheckBackward<float>(kernels());
  CheckBackward<BFloat16>(kernels());
  CheckBackward<Float16>(kernels());
}

template <typename T>
void CheckFused(const CrossEntropyKernels& kernels) {
  for (Shape s : kShapes) {
    Problem<T> apart(s);
    Problem<T> fused(s);
    apart.Forward(kernels);
    apart.Backward(kernels);
    const WithThreads one(1);
    fused.Fused(kernels);
    PANDO_EXPECT_SAME_BITS(fused.losses, apart.losses);
    PANDO_EXPECT_SAME_BITS(fused.logits, apart.dlogits);
  }
}

TEST_P(CrossEntropyKernelTest, FusedIsForwardAndBackwardOnAnyThreads) {
  CheckFused<float>(kernels());
  CheckFused<BFloat16>(kernels());
  CheckFused<Float16>(kernels());
  CheckFused<double>(kernels());
}

TEST_P(CrossEntropyKernelTest, TargetsOutsideTheVocabularyAreReported) {
  for (int32_t bad : {11, 12, -1, 1 << 30}) {
    Problem<float> p({4, 11, 13});
    p.targets[1] = bad;
    p.error = 2;
    p.Forward(kernels());
    EXPECT_EQ(p.error, 3);
    EXPECT_EQ(p.losses[1], 0.0f);
    EXPECT_GT(p.losses[0], 0.0f);
    p.error = 0;
    p.Fused(kernels());
    EXPECT_EQ(p.error, 1);
    for (int c = 0; c < 13; ++c) EXPECT_EQ(p.logits[13 + c], 0.0f);
  }
}

TEST_P(CrossEntropyKernelTest, MinusInfinityExcludesAColumn) {
  Problem<float> p({1, 4096, 4096});
  const float inf = std::numeric_limits<float>::infinity();
  p.logits.assign(4096, -inf);  // the whole first block of columns, and more
  p.logits[4000] = p.logits[4001] = 3.0f;
  p.targets[0] = 4000;
  p.Fused(kernels());
  EXPECT_NEAR(p.losses[0], std::log(2.0), 1e-6);
  EXPECT_EQ(p.logits[0], 0.0f);
  EXPECT_NEAR(p.logits[4000], -0.5 / 8, 1e-7);
  EXPECT_NEAR(p.logits[4001], 0.5 / 8, 1e-7);
}

TEST_P(CrossEntropyKernelTest, NonFiniteLogitsGiveNonFiniteLosses) {
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Problem<float> p({1, 100, 100});
    p.logits[50] = bad;
    p.Forward(kernels());
    EXPECT_FALSE(std::isfinite(p.losses[0]));
  }
}

TEST_P(CrossEntropyKernelTest, LossSumAndCount) {
  Problem<float> p({37, 11, 11});
  p.Forward(kernels());
  double want = 0;
  int64_t want_count = 0;
  for (int64_t r = 0; r < 37; ++r) {
    want += p.losses[r];
    want_count += p.targets[r] != kIgnore;
  }
  double sum = 1;
  int64_t count = 1;
  LossSumArgs a{p.losses.data(), p.targets.data(), &sum, &count, false, DType::kF32, 37, 11,
                kIgnore};
  kernels().loss_sum(a, nullptr);
  EXPECT_DOUBLE_EQ(sum, want);
  EXPECT_EQ(count, want_count);
  a.accumulate = true;
  kernels().loss_sum(a, nullptr);
  EXPECT_DOUBLE_EQ(sum, 2 * want);
  EXPECT_EQ(count, 2 * want_count);
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(CrossEntropyKernelTest, CrossEntropyKernels, kCrossEntropy);

}  // namespace pando
