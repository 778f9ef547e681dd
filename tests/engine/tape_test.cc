#include "engine/tape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "engine/flat_parameters.h"
#include "tests/test_device.h"

namespace pando {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// y = x * factor * x', elementwise with a constant partner: a small op of a test's own.
Tensor Times(const Tensor& x, const Tensor& by) {
  const auto multiply = [](const Tensor& a, const Tensor& b) {
    const std::vector<float> u = a.ToHost<float>(), v = b.ToHost<float>();
    std::vector<float> y(u.size());
    for (size_t i = 0; i < y.size(); ++i) y[i] = u[i] * v[i];
    return Tensor::FromHost(y, a.shape(), a.device(), "product");
  };
  Tensor y = multiply(x, by);
  if (Recording({&x, &by})) {
    Record("times", {&x, &by}, {&y}, [multiply, x = Saved(x), by = Saved(by)](BackwardPass& pass) {
      pass.Add(0, multiply(by.Get(), pass.Gradient()));
      pass.Add(1, multiply(x.Get(), pass.Gradient()));
    });
  }
  return y;
}

Tensor Sum(const Tensor& x) {
  float sum = 0;
  for (float v : x.ToHost<float>()) sum += v;
  Tensor y = Tensor::FromHost(std::vector<float>{sum}, {1}, x.device());
  if (Recording({&x})) {
    Record("sum", {&x}, {&y}, [shape = x.shape()](BackwardPass& pass) {
      const float g = pass.Gradient().ToHost<float>()[0];
      pass.Add(0, Tensor::FromHost(std::vector<float>(shape.numel(), g), shape,
                                   pass.Gradient().device()));
    });
  }
  return y;
}

Tensor Leaf(const std::vector<float>& values) {
  const int64_t n = static_cast<int64_t>(values.size());
  Tensor t = Tensor::FromHost(values, {n}, TestDevice(), "leaf");
  return t.RequireGrad();
}

TEST(Tape, ProductRuleAndSharedInput) {
  Tensor x = Leaf({2, 3});
  Backward(Sum(Times(Times(x, x), x)));  // d x^3 = 3 x^2
  EXPECT_THAT(GradientOf(x).ToHost<float>(), ElementsAre(12, 27));
  EXPECT_EQ(Tape::Current().size(), 0);
}

TEST(Tape, ReshapeKeepsTheGradient) {
  Tensor x = Leaf({1, 2, 3, 4});
  Backward(Sum(Times(x.Reshape({2, -1}),
                     Tensor::FromHost(std::vector<float>{5, 6, 7, 8}, {2, 2}, TestDevice()))));
  EXPECT_THAT(GradientOf(x).ToHost<float>(), ElementsAre(5, 6, 7, 8));
}

TEST(Tape, NoGradAndDetachRecordNothing) {
  Tensor x = Leaf({2});
  {
    const NoGrad guard;
    EXPECT_FALSE(Times(x, x).requires_grad());
  }
  EXPECT_FALSE(Times(x.Detach(), x.Detach()).requires_grad());
  EXPECT_EQ(Tape::Current().size(), 0);
  EXPECT_THROW(Backward(Sum(x.Detach())), InvalidArgument);
}

TEST(Tape, OverwritingASavedTensorIsNamed) {
  Tensor x = Leaf({2, 3});
  Tensor y = Times(x, x);
  Tensor loss = Sum(Times(y, y));
  y.SetZero();
  try {
    Backward(loss);
    FAIL() << "no exception";
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.what(), HasSubstr("product f32 [2] was overwritten"));
  }
  EXPECT_EQ(Tape::Current().size(), 0);
}

TEST(Tape, ReleasedBytesAreNamedAndCanComeBack) {
  Tensor x = Tensor::FromHost(std::vector<float>{1, 2}, {2}, TestDevice(), "gathered unit");
  x.storage()->Release();
  EXPECT_THAT([&] { x.data(); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("gathered unit are released")));
  x.storage()->Restore();
  x.SetZero();
  EXPECT_THAT(x.ToHost<float>(), ElementsAre(0, 0));
}

struct TwoWeights : Module {
  explicit TwoWeights(const Scope& scope)
      : Module(scope),
        a(scope, "a", {2}, Initializer::Normal(0, 1), WeightDecay::kYes),
        b(scope, "b", {2}, Initializer::Ones(), WeightDecay::kNo) {}
  Parameter a, b;
};

struct Hooks : TapeObserver {
  std::string log;
  void BeforeForward(const Unit& u) override { log += "f" + u.name + " "; }
  void AfterForward(const Unit& u) override { log += "/f" + u.name + " "; }
  void BeforeBackward(const Unit& u) override { log += "b" + u.name + " "; }
  void AfterBackward(const Unit& u) override { log += "/b" + u.name + " "; }
  void GradientReady(Parameter& p) override { log += p.name() + "! "; }
};

class Units : public ::testing::TestWithParam<bool> {
 protected:
  Units() : model_(registry_.Root()), flat_(registry_, DType::kF32, TestDevice()) {
    flat_.Initialize(7);
    flat_.ClearGrads();
    flat_.WriteParameter(model_.a, std::vector<float>{2, 3});
    flat_.WriteParameter(model_.b, std::vector<float>{5, 7});
    flat_.MarkChanged();
    Tape::Current().set_observer(&hooks_);
  }
  ~Units() override {
    Tape::Current().set_observer(nullptr);
    Tape::Current().Clear();
  }
  // sum of a * (a b x): `a` is used in both units.
  Tensor Loss(const Tensor& x) {
    first_ = {"1", {&model_.a, &model_.b}, GetParam()};
    second_ = {"2", {&model_.a}, GetParam()};
    const auto y = RunUnit(first_,
                           [this](const std::vector<Tensor>& in) {
                             return std::vector<Tensor>{Times(Times(in[0], model_.a), model_.b)};
                           },
                           {x});
    const auto z = RunUnit(
        second_,
        [this](const std::vector<Tensor>& in) {
          return std::vector<Tensor>{Times(in[0], model_.a)};
        },
        y);
    return Sum(z[0]);
  }

  ParameterRegistry registry_;
  TwoWeights model_;
  FlatParameters flat_;
  Hooks hooks_;
  Unit first_, second_;
};

TEST_P(Units, GradientsAndHooks) {
  Tensor x = Leaf({1, 10});
  Backward(Loss(x));
  EXPECT_THAT(GradientOf(x).ToHost<float>(), ElementsAre(2 * 2 * 5, 3 * 3 * 7));
  EXPECT_THAT(model_.a.grad().ToHost<float>(), ElementsAre(2 * 2 * 5, 2 * 3 * 7 * 10));
  EXPECT_THAT(model_.b.grad().ToHost<float>(), ElementsAre(2 * 2, 3 * 3 * 10));
  EXPECT_EQ(hooks_.log, "f1 /f1 f2 /f2 b2 /b2 b1 b! a! /b1 ");
}

TEST_P(Units, GradientsAccumulateOverBackwards) {
  Backward(Loss(Leaf({1, 10})));
  Backward(Loss(Leaf({1, 10})));
  EXPECT_THAT(model_.b.grad().ToHost<float>(), ElementsAre(2 * 2 * 2, 2 * 3 * 3 * 10));
}

TEST_P(Units, FrozenParameterGetsNoGradient) {
  model_.b.set_requires_grad(false);
  Backward(Loss(Leaf({1, 10})));
  EXPECT_FALSE(model_.b.has_grad());
  EXPECT_THAT(model_.a.grad().ToHost<float>(), ElementsAre(2 * 2 * 5, 2 * 3 * 7 * 10));
  EXPECT_THAT(hooks_.log, ::testing::Not(HasSubstr("b!")));
}

TEST_P(Units, ChangedParameterIsNamed) {
  Tensor loss = Loss(Leaf({1, 10}));
  flat_.MarkChanged();
  EXPECT_THAT([&] { Backward(loss); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("parameter a was changed")));
}

TEST_P(Units, ParameterMayMoveBetweenForwardAndBackward) {
  Tensor loss = Loss(Leaf({1, 10}));
  Tensor elsewhere = Tensor::Empty({2}, DType::kF32, TestDevice(), "elsewhere");
  elsewhere.CopyFrom(model_.a.value());
  model_.a.Place(elsewhere);
  Backward(loss);
  EXPECT_THAT(model_.b.grad().ToHost<float>(), ElementsAre(2 * 2, 3 * 3 * 10));
}

TEST_P(Units, RecomputeKeepsOnlyInputs) {
  Loss(Leaf({1, 10}));
  // Two units of two markers each, or one operation each; plus the sum.
  EXPECT_EQ(Tape::Current().size(), GetParam() ? 3 : 3 + 4 + 1);
}

INSTANTIATE_TEST_SUITE_P(Recompute, Units, ::testing::Bool());

TEST(Module, NamesAndDuplicates) {
  ParameterRegistry registry;
  ModuleList<TwoWeights> list(registry.Root() / "h", 2);
  EXPECT_EQ(registry.parameters()[2]->name(), "h.1.a");
  EXPECT_EQ(registry.Find("h.0.b"), &list[0].b);
  EXPECT_EQ(registry.numel(), 8);
  EXPECT_THROW(TwoWeights(registry.Root() / "h" / 0), InvalidArgument);
}

TEST(Module, UseBeforePlacementIsNamed) {
  ParameterRegistry registry;
  TwoWeights model(registry.Root() / "m");
  EXPECT_THAT([&] { model.a.value(); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("m.a has no place yet")));
}

}  // namespace
}  // namespace pando
