#include "dist/hetero/step_model.h"

#include <gtest/gtest.h>

#include "engine/error.h"

namespace pando {
namespace {

/// Two devices of a node and one of another: a sample takes 3, 3 and 6 s; links of 1000 and 400
/// bytes a second without latency; an embedding of 256 elements and two blocks of 128.
PlanProblem ThreeDevices() {
  PlanProblem p;
  p.global_batch = 10;
  p.units = {{256, 3}, {128, 2}, {128, 2}};
  p.dtype = DType::kBF16;
  for (int d = 0; d < 3; ++d) {
    DeviceProfile device;
    device.name = "device " + std::to_string(d);
    device.kind = d / 2;
    device.node = d / 2;
    const double each = d == 2 ? 6 : 3;
    device.computes.push_back({false, *TimeCurve::Fit({{1, each}, {8, 8 * each}}), 100, 1000});
    device.memory = 100000;
    device.optimizer_seconds = d == 2 ? 0.004 : 0.002;
    device.within = {1000, 0};
    device.between = {400, 0};
    p.devices.push_back(device);
  }
  return p;
}

HeteroPlan Plan(int stage, const std::vector<RankBatch>& batches,
                const std::vector<double>& shares) {
  HeteroPlan plan{stage, std::vector<DevicePlan>(3), 0};
  for (size_t d = 0; d < batches.size(); ++d) plan.devices[d] = {true, 0, batches[d], shares[d]};
  return plan;
}

// 512 elements over 400 bytes/s: a gather in bf16 takes 2.56 s, of the embedding 1.28 s; a
// reduction in f32 5.12 s, of the embedding 2.56 s; the optimizer of a share 1.024 s of it on the
// first two devices, 2.048 s on the third.
TEST(StepModel, Stage1) {
  const HeteroPlan plan = Plan(1, {{2, 2, 2}, {2, 2, 2}, {1, 2, 1}}, {0.4, 0.4, 0.2});
  std::vector<double> busy;
  // Everybody computes for 12 s. The last backward, 4 s, hides the blocks' reduction of 2.56 s, the
  // first forward, 2 s, the blocks' gather of 1.28 s. The embedding's 2.56 + 1.28 s show.
  const double want = 12 + 2.56 + 1.28 + 0.4 * 1.024;
  EXPECT_NEAR(PredictStep(ThreeDevices(), plan, &busy), want, 1e-12);
  EXPECT_EQ(busy, (std::vector<double>{12, 12, 12}));
}

TEST(StepModel, Stage0WaitsForOneAllReduceOfTwoThirdsTwice) {
  const HeteroPlan plan = Plan(0, {{4, 1, 4}, {4, 1, 4}, {1, 2, 1}}, {1, 1, 1});
  // The all-reduce takes 2 x 2/3 of 5.12 s, half of it the embedding's; the rest hides.
  const double embedding = 2.0 * 2 / 3 * 2.56;
  EXPECT_NEAR(PredictStep(ThreeDevices(), plan), 12 + embedding + 2.048, 1e-12);
}

TEST(StepModel, Stage2MeetsInEveryMicroStep) {
  const HeteroPlan plan = Plan(2, {{2, 2, 2}, {2, 2, 2}, {1, 2, 1}}, {0.4, 0.4, 0.2});
  // Backward, 4 s, hides 2.56 s of reduction, twice.
  EXPECT_NEAR(PredictStep(ThreeDevices(), plan), 12 + 2.56 + 1.28 + 0.4096, 1e-12);
  // One sample at a time leaves backward 2 s: 0.56 s more in each of two micro-steps.
  PlanProblem five = ThreeDevices();
  five.global_batch = 4;
  const HeteroPlan small = Plan(2, {{1, 2, 1}, {1, 2, 1}, {0, 2, 0}}, {0.4, 0.4, 0.2});
  EXPECT_NEAR(PredictStep(five, small), 2 * (1 + 2.56) + 2.56 + 1.28 + 0.28 + 0.4096, 1e-12);
}

TEST(StepModel, Stage3GathersInEveryMicroStep) {
  const HeteroPlan plan = Plan(3, {{2, 2, 2}, {2, 2, 2}, {1, 2, 1}}, {0.4, 0.4, 0.2});
  // Before forward the embedding, 1.28 s; forward, 2 s, hides the blocks' 1.28 s. Backward, 4 s,
  // is shorter than gathering blocks once and the embedding twice, 3.84 s, and reducing blocks,
  // 2.56 s.
  const double micro_step = 1.28 + 2 + 6.4;
  EXPECT_NEAR(PredictStep(ThreeDevices(), plan), 2 * micro_step + 2.56 + 0.4096, 1e-12);
}

TEST(StepModel, ANodesOwnLinksAreUsedWhereAllAreInIt) {
  HeteroPlan plan = Plan(1, {{5, 1, 5}, {5, 1, 5}}, {0.5, 0.5});
  // As above, by links of 1000 bytes a second.
  EXPECT_NEAR(PredictStep(ThreeDevices(), plan), 15 + 1.024 + 0.512 + 0.512, 1e-12);
  plan = Plan(1, {{8, 2, 2}}, {1});
  EXPECT_NEAR(PredictStep(ThreeDevices(), plan), 30 + 1.024, 1e-12);
}

TEST(StepModel, ChecksPlans) {
  const PlanProblem p = ThreeDevices();
  CheckPlan(p, Plan(1, {{2, 2, 2}, {2, 2, 2}, {1, 2, 1}}, {0.4, 0.4, 0.2}));
  EXPECT_THROW(CheckPlan(p, Plan(1, {{2, 2, 2}, {2, 2, 2}, {1, 1, 1}}, {0.4, 0.4, 0.2})),
               InvalidArgument);
  EXPECT_THROW(CheckPlan(p, Plan(1, {{2, 2, 2}, {2, 2, 2}, {1, 2, 1}}, {0.4, 0.4, 0.3})),
               InvalidArgument);
  PlanProblem small = p;
  small.devices[1].memory = 5000;
  EXPECT_THROW(CheckPlan(small, Plan(1, {{2, 2, 2}, {2, 2, 2}, {1, 2, 1}}, {0.4, 0.4, 0.2})),
               InvalidArgument);
}

// docs/zero.md: at stage 1 in bf16 6 bytes of each parameter and 12 of those of the share.
TEST(StepModel, MostShareIsWhatMemoryLeaves) {
  PlanProblem p = ThreeDevices();
  p.devices[0].memory = 100 + 2 * 1000 + 6 * 512 + 12 * 256 + 24;
  const StepModel model(p, 1, {0, 1, 2});
  EXPECT_NEAR(model.MostShare(p.devices[0], p.devices[0].computes[0], 2), 257.0 / 512, 1e-12);
  EXPECT_LT(model.MostShare(p.devices[0], p.devices[0].computes[0], 8), 0);
  EXPECT_LE(model.Memory(p.devices[0].computes[0], 2, 257.0 / 512), p.devices[0].memory);
}

}  // namespace
}  // namespace pando
