#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "engine/allocator.h"
#include "engine/cpu/cpu_device.h"
#include "models/gpt.h"

namespace pando {
namespace {

constexpr int64_t kVocab = 61;

/// Tokens that count upwards, again and again.
TokenDataset Counting(int64_t count) {
  auto ids = std::make_shared<std::vector<uint16_t>>(count);
  for (int64_t i = 0; i < count; ++i) (*ids)[i] = static_cast<uint16_t>(i % kVocab);
  return TokenDataset(
      {TokenSegment{.owner = ids, .data = ids->data(), .count = count, .name = "counting"}},
      kVocab);
}

// Between a tenth too little (blocks of memory, attention's statistics) and a quarter too much.
TEST(TrainerTest, MemoryEstimateIsNearTheTruth) {
  const GptConfig config{
      .vocab_size = kVocab, .context = 64, .layers = 4, .heads = 4, .width = 128};
  for (const DType precision : {DType::kF32, DType::kBF16}) {
    for (const bool recompute : {false, true}) {
      const std::unique_ptr<Device> device = NewDeferredCpuDevice(1);
      ParameterRegistry registry;
      Gpt model(registry.Root(), config);
      TrainerOptions options;
      options.steps = 2;
      options.global_batch = options.micro_batch = 16;
      options.recompute = recompute;
      options.precision = precision;
      model.SetRecompute(recompute);
      const auto estimate = static_cast<double>(Trainer::EstimateMemory(model, registry, options));
      Trainer(model, registry, *device, Counting(1000), TokenDataset(), options).Run();
      const auto peak = static_cast<double>(device->allocator().stats().peak_in_use);
      EXPECT_GT(estimate, 0.9 * peak) << Name(precision) << recompute << " " << peak;
      EXPECT_LT(estimate, 1.25 * peak) << Name(precision) << recompute << " " << peak;
    }
  }
}

// 65536 tokens make 6.6 GB of logits in bf16, of which a thirteenth is held at once.
TEST(TrainerTest, MemoryEstimateKnowsThatTheHeadIsInChunks) {
  GptConfig config;
  config.layers = 1;
  config.heads = 1;
  config.width = 64;
  ParameterRegistry registry;
  const Gpt model(registry.Root(), config);
  constexpr int64_t kLogits = int64_t{65536} * 50304 * 2;
  const int64_t bytes = model.ActivationBytes(64, 1024, 2);
  EXPECT_GT(bytes, kLogits / 13);
  EXPECT_LT(bytes, kLogits / 4);
}

/// Notes what it hears, and asks to stop after `steps`.
struct Watcher : TrainerHooks {
  void OnStep(const StepReport& report) override { losses.push_back(report.result.loss); }
  void OnEvaluation(int64_t step, double loss) override { evaluations.emplace_back(step, loss); }
  bool StopRequested() override { return static_cast<int64_t>(losses.size()) >= steps; }
  int64_t steps = 1000;
  std::vector<double> losses;
  std::vector<std::pair<int64_t, double>> evaluations;
};

struct SmallRun {
  SmallRun() : model(registry.Root(), {kVocab, 16, 1, 2, 32}) {
    options.steps = 9;
    options.global_batch = 4;
    options.micro_batch = 3;
    options.eval_interval = 3;
    options.eval_batches = 2;
    trainer = std::make_unique<Trainer>(model, registry, CpuDevice(), Counting(1000), Counting(200),
                                        options);
  }
  ParameterRegistry registry;
  Gpt model;
  TrainerOptions options;
  std::unique_ptr<Trainer> trainer;
};

TEST(TrainerTest, StopsAndGoesOnAsIfItHadNot) {
  SmallRun whole, broken;
  Watcher of_whole, first, second;
  const TrainingSummary summary = whole.trainer->Run(of_whole);
  EXPECT_FALSE(summary.stopped_early);
  EXPECT_EQ(summary.next_step, 9);
  EXPECT_EQ(summary.train_loss, of_whole.losses.back());
  EXPECT_EQ(summary.val_loss, of_whole.evaluations.back().second);
  ASSERT_EQ(of_whole.evaluations.size(), 3U);  // before 3 and 6, and at the end

  first.steps = 3;  // just where an evaluation is due
  const TrainingSummary stopped = broken.trainer->Run(first);
  EXPECT_TRUE(stopped.stopped_early);
  EXPECT_EQ(stopped.next_step, 3);
  EXPECT_FALSE(stopped.val_loss);
  broken.trainer->set_start_step(3);
  broken.trainer->Run(second);
  first.losses.insert(first.losses.end(), second.losses.begin(), second.losses.end());
  EXPECT_EQ(first.losses, of_whole.losses);
  EXPECT_TRUE(first.evaluations.empty());
  EXPECT_EQ(second.evaluations, of_whole.evaluations);
}

TEST(TrainerTest, LeavesParametersAloneThatWillBeLoaded) {
  SmallRun run;
  TrainerOptions options = run.options;
  options.initialize = false;
  Trainer loaded(run.model, run.registry, CpuDevice(), Counting(1000), Counting(200), options);
  const std::vector<float> values = loaded.parameters().masters().ToHost<float>();
  EXPECT_EQ(values, std::vector<float>(values.size(), 0.0F));
}

// Every target once, whatever the micro-batch: the mean over all of them is that of single samples.
TEST(TrainerTest, EvaluatesEveryTargetOnce) {
  SmallRun run;
  const NoGrad no_grad;
  double sum = 0;
  int64_t counted = 0;
  for (int64_t start = 0; start + 1 < 200; start += 16) {
    const int64_t length = std::min<int64_t>(16, 199 - start);
    std::vector<int32_t> tokens, targets;
    for (int64_t i = start; i < start + length; ++i) {
      tokens.push_back(static_cast<int32_t>(i % kVocab));
      targets.push_back(static_cast<int32_t>((i + 1) % kVocab));
    }
    sum += run.model
               .Loss(Tensor::FromHost(tokens, {1, length}, CpuDevice()),
                     Tensor::FromHost(targets, {1, length}, CpuDevice()), StepContext{}, 1.0)
               .Item();
    counted += length;
  }
  EXPECT_EQ(counted, 199);
  // f32 sums of 199 terms, cut differently.
  EXPECT_NEAR(run.trainer->Evaluate(0), sum / 199, 1e-6 * sum / 199);
}

}  // namespace
}  // namespace pando
