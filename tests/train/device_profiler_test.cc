#include "train/device_profiler.h"

#include <gtest/gtest.h>

#include <optional>

#include "dist/hetero/lonely_communicator.h"
#include "engine/allocator.h"
#include "engine/cpu/cpu_device.h"
#include "engine/error.h"
#include "models/gpt.h"
#include "train/train_step.h"

namespace pando {
namespace {

constexpr int64_t kLength = 32;

/// A model on a device of its own.
struct OnDevice {
  OnDevice(const GptConfig& config, int64_t budget, double share = 1)
      : device(NewDeferredCpuDevice(1)), model(registry.Root(), config) {
    device->allocator().SetBudget(budget);
    ZeroOptions zero;
    if (share < 1) {
      others = NewLonelyCommunicator(2, *device);
      zero.stage = 3;
      zero.shares = {share, 1 - share};
    }
    parameters.emplace(registry, model.units(), zero, others.get(), *device);
    parameters->Initialize(1);
  }

  void Step(int64_t batch) {
    const std::vector<int32_t> tokens(static_cast<size_t>(batch * kLength), 1);
    TrainStep step(model, *parameters, {}, batch, kLength);
    step.Run({0, batch, kLength, tokens, tokens}, {batch}, 0, 0);
    device->Synchronize();
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> others;
  ParameterRegistry registry;
  Gpt model;
  std::optional<Zero> parameters;
};

GptConfig Config(int64_t layers, int64_t width) {
  GptConfig config;
  config.vocab_size = 100;
  config.context = 64;
  config.layers = layers;
  config.heads = 2;
  config.width = width;
  return config;
}

ProfileOptions Quick() {
  ProfileOptions options;
  options.length = kLength;
  options.largest = 2000;
  options.seconds = 1e6;
  return options;
}

TEST(DeviceProfiler, FindsTheLargestMicroBatch) {
  for (const GptConfig& config : {Config(1, 16), Config(2, 32), Config(3, 48)}) {
    for (const int64_t budget : {int64_t{12} << 20, int64_t{20} << 20}) {
      OnDevice on(config, budget);
      on.device->error_flag();  // stays
      const int64_t before = on.device->allocator().stats().in_use;
      const MeasuredDevice measured = ProfileDevice(on.model, *on.parameters, Quick());
      // Nothing is left behind, and the budget is what it was.
      EXPECT_EQ(on.device->allocator().stats().in_use, before);
      EXPECT_EQ(on.device->allocator().stats().budget, budget);
      EXPECT_EQ(measured.memory, static_cast<int64_t>(static_cast<double>(budget) * 0.95));
      const int64_t largest = measured.compute.seconds.largest();
      EXPECT_GT(largest, 1);
      EXPECT_LT(largest, 2000);
      on.device->allocator().SetBudget(measured.memory);
      on.Step(largest);
      on.device->allocator().ReleaseCached();
      EXPECT_THROW(on.Step(largest + 1), OutOfMemory);
    }
  }
}

TEST(DeviceProfiler, ItsLineOfMemoryIsEnough) {
  OnDevice on(Config(2, 32), int64_t{20} << 20);
  const MeasuredDevice measured = ProfileDevice(on.model, *on.parameters, Quick());
  Allocator& allocator = on.device->allocator();
  for (const int64_t batch : {int64_t{1}, int64_t{8}, measured.compute.seconds.largest()}) {
    allocator.ReleaseCached();
    allocator.ResetPeak();
    const int64_t before = allocator.stats().in_use;
    on.Step(batch);
    const int64_t needed = allocator.stats().peak_in_use - before;
    const int64_t said = measured.compute.fixed_bytes + batch * measured.compute.bytes_per_sample;
    EXPECT_LE(needed, said) << batch;
    if (batch < measured.compute.seconds.largest()) continue;
    EXPECT_LE(said, needed + needed / 20 + (1 << 19));  // nor far above
  }
  EXPECT_GT(measured.optimizer_seconds, 0);
}

TEST(DeviceProfiler, MeasuresWithAPartOfTheState) {
  const int64_t budget = int64_t{24} << 20;
  GptConfig large = Config(2, 32);
  large.vocab_size = 8000;  // 4 MB of state
  OnDevice whole(large, budget), part(large, budget, 0.1);
  const MeasuredDevice a = ProfileDevice(whole.model, *whole.parameters, Quick());
  const MeasuredDevice b = ProfileDevice(part.model, *part.parameters, Quick());
  EXPECT_GT(b.compute.seconds.largest(), a.compute.seconds.largest());
}

TEST(DeviceProfiler, SaysWhereNotEvenOneSampleFits) {
  GptConfig large = Config(2, 32);
  large.vocab_size = 20000;  // 2.5 MB of logits
  OnDevice on(large, int64_t{50} << 20);
  on.device->allocator().SetBudget(on.device->allocator().stats().reserved + (1 << 16));
  EXPECT_THROW(ProfileDevice(on.model, *on.parameters, Quick()), OutOfMemory);
}

}  // namespace
}  // namespace pando
