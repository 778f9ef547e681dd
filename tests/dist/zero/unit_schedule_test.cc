#include "dist/zero/unit_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/zero/zero.h"
#include "engine/error.h"
#include "models/layers.h"
#include "tests/dist/communicator/ranks.h"

namespace pando {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two units, of which the second uses a weight of the first too.
struct TwoUnits : Module {
  explicit TwoUnits(const Scope& scope)
      : Module(scope),
        a(scope, "a", {8, 8}, Initializer::Normal(0, 1), WeightDecay::kYes),
        norm(scope / "norm", 8, 1e-5, true),
        first{"first", {&a}, false},
        second{"second", scope.registry().parameters(), false} {}
  Parameter a;
  LayerNormLayer norm;
  Unit first, second;
};

TEST(UnitSchedule, KnowsWhatIsNeededWhen) {
  ParameterRegistry registry;
  TwoUnits model(registry.Root());
  const UnitSchedule s(registry, {&model.first, &model.second});
  ASSERT_EQ(s.units(), 2);
  EXPECT_EQ(s.unit(0).interval.begin, 0);
  EXPECT_EQ(s.unit(0).interval.end, 128);  // 64 elements and a gap
  EXPECT_EQ(s.unit(0).gaps.size(), 1U);
  EXPECT_EQ(s.unit(1).interval.end, 384);  // weight and bias, 8 each
  EXPECT_EQ(s.unit(1).owned.size(), 2U);
  // Forward of both, backward of both: the second needs the first.
  EXPECT_THAT(s.NeedsAt(0), ElementsAre(0));
  EXPECT_THAT(s.NeedsAt(1), ElementsAre(1, 0));
  EXPECT_THAT(s.NeedsAt(2), ElementsAre(1, 0));
  EXPECT_THAT(s.NeedsAt(3), ElementsAre(0));
  EXPECT_EQ(s.UnitAt(2), 1);
  EXPECT_TRUE(s.CompletesGradients(1, 2));
  EXPECT_FALSE(s.CompletesGradients(0, 2));
  EXPECT_TRUE(s.CompletesGradients(0, 3));
  EXPECT_FALSE(s.CompletesGradients(0, 0));
  // Never out of use once it is there.
  EXPECT_EQ(s.Gathers(0, true), 1);
  EXPECT_EQ(s.Gathers(1, true), 1);
  EXPECT_EQ(s.Gathers(1, false), 1);
}

TEST(UnitSchedule, WithoutUnitsTheModelIsOne) {
  ParameterRegistry registry;
  TwoUnits model(registry.Root());
  const UnitSchedule s(registry, {});
  EXPECT_EQ(s.units(), 1);
  EXPECT_EQ(s.unit(0).interval.end, 384);
}

TEST(UnitSchedule, RefusesAParameterWithoutAUnit) {
  ParameterRegistry registry;
  TwoUnits model(registry.Root());
  EXPECT_THROW(UnitSchedule(registry, {&model.first}), InvalidArgument);
}

/// Runs units in the order given, forward and backward, on two ranks; returns the first complaint.
std::string ComplaintOf(const std::vector<int>& order, bool with_units) {
  try {
    OnRanks(2, [&](Communicator& c) {
      ParameterRegistry registry;
      TwoUnits model(registry.Root());
      Unit* units[] = {&model.first, &model.second};
      Zero zero(registry,
                with_units ? std::vector<Unit*>{units[0], units[1]} : std::vector<Unit*>{},
                {.stage = 3}, &c, CpuDevice());
      zero.Initialize(1);
      zero.BeginStep();
      zero.MicroStep(
          [&] {
            Tensor x = Tensor::Zeros({2, 8}, DType::kF32, CpuDevice());
            x.RequireGrad();
            for (const int u : order) {
              const auto run = [&](const std::vector<Tensor>& in) {
                return std::vector<Tensor>{model.norm(in[0])};
              };
              const auto keep = [](const std::vector<Tensor>& in) { return in; };
              x = RunUnit(*units[u], u == 1 ? UnitFunction(run) : UnitFunction(keep), {x})[0];
            }
          },
          true);
      zero.FinishGradients();
    });
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(UnitSchedule, NoticesAModelThatRunsUnitsInAnotherOrder) {
  EXPECT_THAT(ComplaintOf({1, 0}, true), HasSubstr("forward of second"));
  EXPECT_THAT(ComplaintOf({0, 0}, true), HasSubstr("forward of first"));
  EXPECT_THAT(ComplaintOf({0, 1}, true), HasSubstr("2 of 4 steps"));  // no backward
  EXPECT_EQ(ComplaintOf({}, false), "");  // one unit: nobody looks at hooks
}

}  // namespace
}  // namespace pando
