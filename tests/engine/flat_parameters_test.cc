#include "engine/flat_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/parallel.h"
#include "engine/optimizer.h"
#include "engine/schedule.h"
#include "tests/test_device.h"

namespace pando {
namespace {

struct Small : Module {
  explicit Small(const Scope& s)
      : Module(s),
        w(s, "w", {100, 3}, Initializer::Normal(0.5, 2), WeightDecay::kYes),
        b(s, "b", {5}, Initializer::Constant(3), WeightDecay::kNo),
        u(s, "u", {128}, Initializer::Uniform(-1, 1), WeightDecay::kNo) {}
  Parameter w, b, u;
};

TEST(Initializer, AShardIsTheSameAsTheWhole) {
  const Initializer normal = Initializer::Normal(0, 0.02);
  std::vector<float> whole(100000), part(777);
  normal.Fill(1, "wte.weight", 0, whole);
  for (int64_t begin : {0, 1, 4097, 99000}) {
    normal.Fill(1, "wte.weight", begin, part);
    for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], whole[begin + i]);
  }
  SetNumThreads(1);
  std::vector<float> one_thread(whole.size());
  normal.Fill(1, "wte.weight", 0, one_thread);
  SetNumThreads(2);
  EXPECT_EQ(whole, one_thread);
  std::vector<float> other(whole.size());
  normal.Fill(1, "wpe.weight", 0, other);
  EXPECT_NE(whole, other);
}

TEST(Initializer, MomentsOfTheNormal) {
  std::vector<float> x(1 << 20);
  Initializer::Normal(0.5, 2).Fill(3, "w", 0, x);
  double m1 = 0, m2 = 0, m4 = 0;
  int64_t beyond_two = 0;
  for (float v : x) {
    const double z = (v - 0.5) / 2;
    m1 += z;
    m2 += z * z;
    m4 += z * z * z * z;
    beyond_two += std::abs(z) > 2;
  }
  const double n = static_cast<double>(x.size());
  // Five standard errors: variances of z, z^2 and z^4 are 1, 2 and 96.
  EXPECT_NEAR(m1 / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(m2 / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(m4 / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(beyond_two / n, 0.0455003, 5 * std::sqrt(0.0455 / n));
}

TEST(FlatLayout, AlignmentAndRuns) {
  ParameterRegistry registry;
  Small model(registry.Root());
  const FlatLayout layout(registry.parameters());
  EXPECT_EQ(layout.entries()[1].offset, 384);
  EXPECT_EQ(layout.entries()[2].offset, 512);
  EXPECT_EQ(layout.size(), 640);
  const auto runs = layout.Runs({0, 640});
  ASSERT_EQ(runs.size(), 2U);  // b and u decay alike
  EXPECT_TRUE(runs[0].decays);
  EXPECT_EQ(runs[0].interval.end, 300);
  EXPECT_EQ(runs[1].interval.begin, 384);
  EXPECT_EQ(runs[1].interval.end, 640);
  const auto cut = layout.Runs({256, 512});
  ASSERT_EQ(cut.size(), 2U);
  EXPECT_EQ(cut[0].interval.begin, 256);
  EXPECT_EQ(cut[1].interval.end, 389);
  model.b.set_requires_grad(false);
  EXPECT_EQ(layout.Runs({0, 640})[1].interval.begin, 512);
}

// A step cut in intervals is the whole step, bit for bit, and AdamW's first step is known: with
// m / bias = g and sqrt(v / bias) = |g|, p' = p (1 - lr wd) - lr g / (|g| + eps).
TEST(AdamW, FirstStepInClosedFormWhateverTheCut) {
  ParameterRegistry registry;
  Small model(registry.Root());
  FlatParameters flat(registry, DType::kF32, TestDevice());
  flat.Initialize(11);
  const std::vector<float> before = flat.masters().ToHost<float>();
  std::vector<float> g(640);
  const auto padding = [](int i) { return (i >= 300 && i < 384) || (i >= 389 && i < 512); };
  for (int i = 0; i < 640; ++i) g[i] = padding(i) ? 0 : static_cast<float>(i % 7 - 3) * 0.25F;
  flat.grads().CopyFrom(Tensor::FromHost(g, {640}, TestDevice()));
  for (FlatInterval cut : {FlatInterval{0, 256}, FlatInterval{256, 640}}) {
    AdamW adamw(cut, {}, TestDevice());
    Tensor p = flat.masters().Narrow(cut.begin, cut.size());
    adamw.Step(flat.layout(), p, flat.grads().Narrow(cut.begin, cut.size()), p, 0.01, 0.5, 0);
    EXPECT_EQ(adamw.steps(), 1);
  }
  const std::vector<float> after = flat.masters().ToHost<float>();
  for (int i = 0; i < 640; ++i) {
    const double decay = i < 300 ? 0.1 : 0;
    const double gi = 0.5 * g[i];
    const double want = before[i] * (1 - 0.01 * decay) - 0.01 * gi / (std::abs(gi) + 1e-8);
    // Two roundings of values up to 8 in f32, and one of v's square root.
    EXPECT_NEAR(after[i], padding(i) ? before[i] : want, 1e-6) << i;
  }
}

TEST(FlatParameters, Bf16ValuesFollowMasters) {
  ParameterRegistry registry;
  Small model(registry.Root());
  FlatParameters flat(registry, DType::kBF16, TestDevice());
  flat.Initialize(11);
  const auto master = flat.ReadParameter(model.w);
  const auto value = model.w.value().ToHost<BFloat16>();
  for (size_t i = 0; i < master.size(); ++i) {
    ASSERT_EQ(value[i].bits, ToBFloat16(master[i]).bits);
  }
  EXPECT_EQ(model.w.grad().dtype(), DType::kF32);
}

TEST(FlatParameters, UnreachedGradientsBecomeZero) {
  ParameterRegistry registry;
  Small model(registry.Root());
  FlatParameters flat(registry, DType::kF32, TestDevice());
  flat.grads().CopyFrom(Tensor::FromHost(std::vector<float>(640, 9), {640}, TestDevice()));
  flat.ClearGrads();
  model.b.StartGrad();
  flat.CompleteGrads();
  EXPECT_EQ(model.w.grad().ToHost<float>()[7], 0);
  EXPECT_EQ(model.b.grad().ToHost<float>()[4], 9);
}

TEST(FlatParameters, PaddingRowsAreZeroAndAbsent) {
  ParameterRegistry registry;
  Parameter p(registry.Root(), "wte", {3, 2}, Initializer::Ones(), WeightDecay::kYes, 5);
  FlatParameters flat(registry, DType::kF32, TestDevice());
  flat.Initialize(1);
  EXPECT_EQ(p.value().shape(), (Shape{8, 2}));
  EXPECT_EQ(registry.numel(), 6);
  std::vector<float> want(6, 1.0F);
  EXPECT_EQ(flat.ReadParameter(p), want);
  want.resize(16, 0.0F);
  EXPECT_EQ(p.value().ToHost<float>(), want);
}

TEST(Schedule, ClosedForms) {
  const Schedule cosine{Schedule::Kind::kCosine, 1e-3, 1e-4, 100, 2000};
  EXPECT_DOUBLE_EQ(cosine.At(0), 1e-3 / 101);
  EXPECT_DOUBLE_EQ(cosine.At(99), 1e-3 * 100 / 101);
  EXPECT_DOUBLE_EQ(cosine.At(100), 1e-3);
  EXPECT_DOUBLE_EQ(cosine.At(1050), 5.5e-4);  // half way
  EXPECT_DOUBLE_EQ(cosine.At(2000), 1e-4);
  EXPECT_DOUBLE_EQ(cosine.At(5000), 1e-4);
  const Schedule linear{Schedule::Kind::kLinear, 1e-3, 0, 0, 10};
  EXPECT_DOUBLE_EQ(linear.At(5), 5e-4);
  const Schedule constant{Schedule::Kind::kConstant, 2, 0, 1, 10};
  EXPECT_DOUBLE_EQ(constant.At(0), 1);
  EXPECT_DOUBLE_EQ(constant.At(9), 2);
}

TEST(Clip, AsPyTorch) {
  EXPECT_DOUBLE_EQ(ClipFactor(2, 1), 1 / (2 + 1e-6));
  EXPECT_DOUBLE_EQ(ClipFactor(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(ClipFactor(7, 0), 1);
  const Tensor t = Tensor::FromHost(std::vector<float>{3, -4}, {2}, TestDevice());
  EXPECT_DOUBLE_EQ(SumOfSquares(t).Item(), 25);
}

}  // namespace
}  // namespace pando
