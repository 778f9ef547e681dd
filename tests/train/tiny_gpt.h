#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dist/zero/batch_plan.h"
#include "dist/zero/zero.h"
#include "engine/cpu/cpu_device.h"
#include "engine/error.h"
#include "engine/module.h"
#include "engine/random.h"
#include "models/gpt.h"
#include "train/train_step.h"

namespace pando {

/// How a TinyGpt is trained.
struct TinyOptions {
  DType dtype = DType::kF32;
  bool recompute = false;
  double dropout = 0.1;
  std::vector<int64_t> micro_batches = {12};
  std::optional<LossScaleOptions> loss_scale = std::nullopt;
  /// For a rank of several: which part of the state it holds, and which samples it takes.
  ZeroOptions zero = {};
  BatchPlan plan = {};
};

/// A model of two blocks on a device, and a step on it: small enough for hundreds of steps in a
/// test.
class TinyGpt {
 public:
  static constexpr int64_t kSamples = 12;
  static constexpr int64_t kLength = 16;
  static constexpr int64_t kVocab = 61;

  explicit TinyGpt(const TinyOptions& options, Device& device = CpuDevice(),
                   Communicator* communicator = nullptr)
      : options_(options),
        rank_(communicator == nullptr ? 0 : communicator->rank()),
        model_(registry_.Root(), {.vocab_size = kVocab,
                                  .context = kLength,
                                  .layers = 2,
                                  .heads = 2,
                                  .width = 32,
                                  .dropout = options.dropout}),
        flat_(registry_, model_.units(), WithDType(options), communicator, device) {
    model_.SetRecompute(options.recompute);
    flat_.Initialize(1);
    TrainStepOptions step;
    step.loss_scale = options.loss_scale;
    step_ = std::make_unique<TrainStep>(model_, flat_, step, kSamples, kLength);
  }

  /// Step number `step`, on tokens drawn for it. Each sample counts upwards, so there is something
  /// to learn.
  StepResult Run(int64_t step, double learning_rate = 1e-3) {
    std::vector<int32_t> tokens(kSamples * kLength), targets(tokens.size());
    for (int64_t s = 0; s < kSamples; ++s) {
      const RandomKey key{.seed = 1, .site = HashName("data"), .step = static_cast<uint32_t>(step)};
      const auto first = static_cast<int32_t>(RandomBits(key, s, 0) % kVocab);
      for (int64_t t = 0; t < kLength; ++t) {
        tokens[s * kLength + t] = static_cast<int32_t>((first + t) % kVocab);
        // Some positions have no target, and not equally many in each micro-batch.
        targets[s * kLength + t] = t < s ? -1 : static_cast<int32_t>((first + t + 1) % kVocab);
      }
    }
    if (options_.plan.ranks.empty()) {
      return step_->Run({step * kSamples, kSamples, kLength, tokens, targets},
                        options_.micro_batches, step, learning_rate);
    }
    const int64_t first = options_.plan.FirstSample(rank_);
    const int64_t mine = options_.plan.ranks[static_cast<size_t>(rank_)].samples();
    const auto part = [&](const std::vector<int32_t>& all) {
      return std::span<const int32_t>(all).subspan(first * kLength, mine * kLength);
    };
    return step_->Run({step * kSamples + first, mine, kLength, part(tokens), part(targets)},
                      options_.plan.MicroBatches(rank_), step, learning_rate);
  }

  std::vector<double> Losses(int64_t steps) {
    std::vector<double> losses;
    for (int64_t step = 0; step < steps; ++step) losses.push_back(Run(step).loss);
    return losses;
  }

  /// Masters and both moments.
  std::vector<std::vector<float>> State() {
    return {flat_.masters().ToHost<float>(), step_->optimizer().exp_avg().ToHost<float>(),
            step_->optimizer().exp_avg_sq().ToHost<float>()};
  }

  /// Sets all elements of a parameter.
  void Fill(const std::string& name, float value) {
    const Parameter* p = registry_.Find(name);
    ASSERT_NE(p, nullptr) << name;
    for (const FlatLayout::Entry& e : flat_.layout().entries()) {
      if (e.parameter != p) continue;
      flat_.WriteMasters(e.offset, std::vector<float>(p->shape().numel(), value));
    }
    flat_.ValuesFromMasters();
  }

  TrainStep& step() { return *step_; }
  Zero& flat() { return flat_; }

 private:
  static ZeroOptions WithDType(const TinyOptions& options) {
    ZeroOptions zero = options.zero;
    zero.dtype = options.dtype;
    return zero;
  }

  TinyOptions options_;
  int rank_;
  ParameterRegistry registry_;
  Gpt model_;
  Zero flat_;
  std::unique_ptr<TrainStep> step_;
};

/// Losses and final state of a training pass on a device of its own.
struct TinyPass {
  TinyPass(const TinyOptions& options, Device& device, int64_t steps) {
    TinyGpt gpt(options, device);
    losses = gpt.Losses(steps);
    state = gpt.State();
  }
  bool operator==(const TinyPass&) const = default;
  std::vector<double> losses;
  std::vector<std::vector<float>> state;
};

/// Whether run(seed), a pass in which a wait is left out, shows it for one of the seeds 1 ...
/// `seeds`: by other numbers than `want`, or by an error.
template <typename Run>
bool IsMissed(uint64_t seeds, const TinyPass& want, const Run& run) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    try {
      if (!(run(seed) == want)) return true;
    } catch (const Error&) {
      return true;
    }
  }
  return false;
}

}  // namespace pando
