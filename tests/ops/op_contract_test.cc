// What single operations promise besides values and gradients: ids out of range, memory that is
// overwritten or shared, numbers beyond a narrower dtype.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "engine/cpu/cpu_device.h"
#include "engine/flat_parameters.h"
#include "engine/module.h"
#include "engine/tape.h"
#include "ops/arithmetic.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/gelu.h"
#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "tests/ops/op_evaluate.h"
#include "tests/samples.h"

namespace pando {
namespace {

using ::testing::ElementsAre;

Tensor Floats(const std::vector<float>& values, const Shape& shape, Device& device = CpuDevice()) {
  return Tensor::FromHost(values, shape, device, "floats");
}
Tensor Ints(const std::vector<int32_t>& values, Device& device = CpuDevice()) {
  return Tensor::FromHost(values, {static_cast<int64_t>(values.size())}, device, "ints");
}

/// Both kinds of streams, since errors are reported when the work runs.
class ErrorFlagTest : public testing::TestWithParam<bool> {
 protected:
  Device& device() { return deferred_ == nullptr ? CpuDevice() : *deferred_; }
  void TearDown() override {
    device().Synchronize();
    Tape::Current().Clear();
  }
  /// Throws once, and is then ready for the next error.
  void ExpectReported() {
    EXPECT_THROW(device().CheckErrorFlag(), InvalidArgument);
    EXPECT_NO_THROW(device().CheckErrorFlag());
  }

 private:
  std::unique_ptr<Device> deferred_ = GetParam() ? NewDeferredCpuDevice(7) : nullptr;
};

TEST_P(ErrorFlagTest, TokensOutsideTheTable) {
  Tensor table = Floats({1, 2, 3, 4, 5, 6}, {3, 2}, device());
  table.RequireGrad();
  EXPECT_NO_THROW(device().CheckErrorFlag());
  for (const int32_t bad :
       {3, -1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    const Tensor y = Embedding(Ints({2, bad, 0}, device()), table);
    EXPECT_THAT(y.ToHost<float>(), ElementsAre(5, 6, 0, 0, 1, 2));
    ExpectReported();
    Backward(Sum(y));
    EXPECT_THAT(GradientOf(table).ToHost<float>(), ElementsAre(1, 1, 0, 0, 1, 1));
    Tape::Current().Clear();
  }
}

TEST_P(ErrorFlagTest, PositionalTokensOutsideTheTable) {
  const Tensor table = Floats({1, 2}, {2, 1}, device());
  const Tensor positions = Floats({10, 20, 30}, {3, 1}, device());
  const Tensor tokens = Ints({0, 2, 1}, device()).Reshape({1, 3});
  EXPECT_THAT(PositionalEmbedding(tokens, table, positions).ToHost<float>(),
              ElementsAre(11, 0, 32));
  ExpectReported();
}

TEST_P(ErrorFlagTest, TargetsOutsideTheVocabulary) {
  for (const auto loss_of : {+[](const Tensor&x, const Tensor&t, const CrossEntropyOptions&o) {
                               return CrossEntropy(x, t, o);
                             },
                             +[](const Tensor&x, const Tensor&t, const CrossEntropyOptions&o) {
                               return CrossEntropyInPlace(Affine(x, 1), t, o);
                             }}) {
    for (const int32_t bad : {2, 3, -2, std::numeric_limits<int32_t>::max()}) {
      Tensor logits = Floats({0, 0, 9, 0, 0, 9}, {2, 3}, device());
      logits.RequireGrad();
      // Column 2 is padding: beyond the vocabulary, too.
      const Tensor loss = loss_of(logits, Ints({1, bad}, device()), {.vocab = 2});
      EXPECT_NEAR(loss.Item(), std::log(2.0), 1e-7);
      ExpectReported();
      Backward(loss);
      EXPECT_THAT(GradientOf(logits).ToHost<float>(), ElementsAre(0.5, -0.5, 0, 0, 0, 0));
    }
    // The value that says "does not count" is no error.
    const Tensor logits = Floats({0, 0, 1, 0}, {2, 2}, device());
    EXPECT_NEAR(loss_of(logits, Ints({1, -100}, device()), {.ignore_index = -100}).Item(),
                std::log(2.0), 1e-7);
    EXPECT_NO_THROW(device().CheckErrorFlag());
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, ErrorFlagTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Deferred" : "Immediate"; });

// A loss that is itself what backward starts from has its own path: nothing is multiplied.
TEST(CrossEntropyContract, AsTheLossItselfAndWithinOne) {
  for (const OpEntry& op : OpTable()) {
    if (op.name != "CrossEntropy" && op.name != "CrossEntropyInPlace") continue;
    for (const OpCase& c : op.cases) {
      const Evaluation direct = Evaluate(c, c.run, {.dtype = DType::kF32, .direct_loss = true});
      OpCase within = c;
      within.run = [&c](const std::vector<Tensor>& x) {
        return std::vector<Tensor>{Affine(c.run(x)[0], 1)};
      };
      const Evaluation affine =
          Evaluate(within, within.run, {.dtype = DType::kF32, .direct_loss = true});
      ExpectSameBits(direct.outputs[0], affine.outputs[0], op.name + " " + c.name);
      ExpectSameBits(direct.gradients[0], affine.gradients[0], op.name + " " + c.name);
    }
  }
}

TEST(CrossEntropyContract, InPlaceTakesNoSecondTensorOfLogits) {
  Tensor logits = Floats({0, 0, 0, 0}, {1, 4});
  logits.RequireGrad();
  Backward(CrossEntropyInPlace(logits, Ints({3})));
  EXPECT_EQ(GradientOf(logits).storage(), logits.storage());
  EXPECT_THAT(logits.ToHost<float>(), ElementsAre(0.25, 0.25, 0.25, -0.75));
}

TEST(CrossEntropyContract, LogitsThatWereSavedAreNotOverwrittenUnnoticed) {
  Tensor x = Floats({1, 2}, {1, 2});
  x.RequireGrad();
  const Tensor logits = Exp(x);  // keeps its output for backward
  const Tensor loss = CrossEntropyInPlace(logits, Ints({0}));
  EXPECT_THROW(Backward(loss), InvalidArgument);
}

// A parameter's value must not become a gradient or an intermediate.
TEST(InPlaceContract, ParametersAreNotOverwritten) {
  ParameterRegistry registry;
  const Parameter p(registry.Root(), "p", {1, 4}, Initializer::Ones(), WeightDecay::kNo);
  FlatParameters flat(registry, DType::kF32, CpuDevice());
  flat.Initialize(1);
  EXPECT_THROW(CrossEntropyInPlace(p.value(), Ints({3})), InvalidArgument);
  EXPECT_THROW(BiasGelu(p.value(), Floats({1, 2, 3, 4}, {4}), true), InvalidArgument);
  EXPECT_THAT(p.value().ToHost<float>(), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(Tape::Current().size(), 0);
}

TEST(BiasGeluContract, ReuseTakesTheInputsPlaceOnlyWhereBackwardWillFollow) {
  Tensor bias = Floats({1, 2}, {2});
  const Tensor x = Floats({3, 4}, {1, 2});
  BiasGelu(x, bias, true);
  EXPECT_THAT(x.ToHost<float>(), ElementsAre(3, 4));
  bias.RequireGrad();
  BiasGelu(x, bias, true);
  EXPECT_THAT(x.ToHost<float>(), ElementsAre(4, 6));
  BiasGelu(x, bias, false);
  EXPECT_THAT(x.ToHost<float>(), ElementsAre(4, 6));
  Tape::Current().Clear();
}

// The residual's gradient is handed to x as well, without a copy: what is added to x's alone, later
// in backward, must not reach it.
TEST(ResidualLayerNormContract, TheSharedGradientIsCopiedBeforeItIsAddedTo) {
  Tensor x = Floats({1, 2}, {1, 2}), residual = Floats({3, 4}, {1, 2});
  x.RequireGrad();
  residual.RequireGrad();
  const Tensor ones = Floats({1, 1}, {2});
  const Tensor through = Linear(x, Floats({10, 20, 30, 40}, {2, 2}), Tensor());
  const Tensor sum = ResidualLayerNorm(x, residual, ones, ones).sum;
  Backward(Add(Sum(through), Sum(sum)));
  EXPECT_THAT(GradientOf(residual).ToHost<float>(), ElementsAre(1, 1));
  EXPECT_THAT(GradientOf(x).ToHost<float>(), ElementsAre(31, 71));
}

// Where a device fuses no products, as here, what could be fused costs nothing: the same kernels
// run, on the same numbers.
TEST(FusedLinearContract, IsTheUnfusedOperationsToTheBit) {
  const auto none = Tensor();
  const auto hidden = [none](const std::vector<Tensor>& x, bool bias) {
    const Tensor y = Linear(x[0], x[1], none);
    return bias ? BiasGelu(y, x[3], true) : Gelu(y);
  };
  for (const bool bias : {true, false}) {
    OpCase c{
        .name = "fused",
        .inputs = {Spread({3, 7, 24}, -1, 1, 1), Spread({24, 40}, -1, 1, 2),
                   Spread({40, 24}, -1, 1, 3), Spread({40}, -1, 1, 4), Spread({24}, -1, 1, 5)}};
    const std::vector<std::pair<OpFunction, OpFunction>> pairs = {
        {[=](const std::vector<Tensor>& x) {
           return std::vector<Tensor>{LinearGelu(x[0], x[1], bias ? x[3] : none)};
         },
         [=](const std::vector<Tensor>& x) { return std::vector<Tensor>{hidden(x, bias)}; }},
        {[=](const std::vector<Tensor>& x) {
           return std::vector<Tensor>{
               FeedForward(x[0], x[1], bias ? x[3] : none, x[2], bias ? x[4] : none)};
         },
         [=](const std::vector<Tensor>& x) {
           return std::vector<Tensor>{Linear(hidden(x, bias), x[2], bias ? x[4] : none)};
         }}};
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      for (const auto& [fused, plain] : pairs) {
        const Evaluation got = Evaluate(c, fused, {.dtype = dtype});
        const Evaluation want = Evaluate(c, plain, {.dtype = dtype});
        ExpectSameBits(got.outputs[0], want.outputs[0], "output");
        ASSERT_EQ(got.has_gradient, want.has_gradient);
        for (size_t i = 0; i < c.inputs.size(); ++i) {
          if (got.has_gradient[i]) ExpectSameBits(got.gradients[i], want.gradients[i], "gradient");
        }
      }
    }
  }
}

TEST(DropoutContract, ProbabilityZeroIsNoCopy) {
  const Tensor x = Floats({3, 4}, {2});
  EXPECT_EQ(Dropout(x, 0, {}, Tensor()).storage(), x.storage());
}

// Which elements are dropped depends on the sample's number, not on its place in the batch.
TEST(DropoutContract, FollowsTheSampleNotTheBatch) {
  const RandomKey key = {.seed = 3, .site = 4, .step = 5};
  const Tensor x = Floats(std::vector<float>(150, 1.0f), {3, 50});
  const auto run = [&](const std::vector<int64_t>& ids) {
    const int64_t n = static_cast<int64_t>(ids.size());
    return Dropout(x.Narrow(0, n), 0.5, key, Tensor::FromHost(ids, {n}, CpuDevice()))
        .ToHost<float>();
  };
  const std::vector<float> batch = run({7, 8, 9}), one = run({9});
  EXPECT_TRUE(std::equal(one.begin(), one.end(), batch.begin() + 100));
  EXPECT_FALSE(std::equal(one.begin(), one.end(), batch.begin()));
}

// 1 + 2^-8 lies halfway between two bf16 numbers, and its even neighbour is 1.
TEST(CastContract, RoundsToNearestEven) {
  const std::vector<float> values = {1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 1 + 0x1.1p-8f, 70000.0f, -0.0f};
  Tensor x = Floats(values, {5});
  EXPECT_THAT(Doubles(Cast(x, DType::kBF16).ToHost<BFloat16>()),
              ElementsAre(1, 1 + 0x1p-6, 1 + 0x1p-7, 70144, 0));
  EXPECT_EQ(ToFloat(Cast(x, DType::kF16).ToHost<Float16>()[3]),
            std::numeric_limits<float>::infinity());
  // To integers towards zero.
  EXPECT_THAT(Cast(Floats({1.9f, -1.9f, 0.5f}, {3}), DType::kI32).ToHost<int32_t>(),
              ElementsAre(1, -1, 0));
  EXPECT_THAT(Cast(Floats({3e9f, -3e9f}, {2}), DType::kI64).ToHost<int64_t>(),
              ElementsAre(3000000000, -3000000000));
}

TEST(CastContract, ItsOwnDtypeIsNoCopy) {
  const Tensor x = Floats({3, 4}, {2});
  EXPECT_EQ(Cast(x, DType::kF32).storage(), x.storage());
}

TEST(MaxContract, NanIsLargestOfAll) {
  const float nan = std::nanf("");
  EXPECT_TRUE(std::isnan(Max(Floats({1, nan, 3}, {3})).Item()));
  EXPECT_TRUE(std::isnan(Maximum(Floats({1}, {1}), Floats({nan}, {1})).Item()));
  EXPECT_TRUE(std::isnan(Maximum(Floats({nan}, {1}), Floats({1}, {1})).Item()));
  EXPECT_TRUE(std::isnan(Minimum(Floats({1}, {1}), Floats({nan}, {1})).Item()));
}

TEST(MeanContract, OfNothingIsNan) { EXPECT_TRUE(std::isnan(Mean(Floats({}, {0})).Item())); }

}  // namespace
}  // namespace pando
