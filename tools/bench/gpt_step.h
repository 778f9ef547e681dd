#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "dist/zero/zero.h"
#include "engine/module.h"
#include "models/gpt.h"
#include "tools/pando/device_option.h"
#include "train/train_step.h"

namespace pando {

/// Which step is timed.
struct GptStepOptions {
  GptConfig model = {.context = 64};
  int64_t micro_batch = 4;
  std::string device = "cpu";
  std::string precision = "f32";
  double learning_rate = 1e-4;
  bool recompute = false;
  /// Every tensor in an allocation of its own, for memory checkers.
  bool direct = false;

  int64_t tokens() const { return micro_batch * model.context; }
  DType dtype() const { return precision == "bf16" ? DType::kBF16 : DType::kF32; }
};

/// Declares --preset, --layers, --heads, --width, --context, --vocab, --micro-batch, --device,
/// --precision, --learning-rate, --recompute and --direct.
void AddGptStepOptions(CLI::App& app, GptStepOptions& options);

/// A GPT, and training steps of it on random tokens.
class GptStep {
 public:
  /// Throws InvalidArgument, OutOfMemory.
  explicit GptStep(const GptStepOptions& options);

  StepResult Run();

  /// A line for people.
  const std::string& device_note() const { return device_.note; }
  Device& device() const { return *device_.device; }
  const Gpt& model() const { return model_; }
  const ParameterRegistry& registry() const { return registry_; }
  Zero& parameters() { return flat_; }

 private:
  GptStepOptions options_;
  ChosenDevice device_;
  ParameterRegistry registry_;
  Gpt model_;
  Zero flat_;
  TrainStep step_;
  std::vector<int32_t> tokens_;  // one more than a batch has: targets are the tokens behind
  int64_t done_ = 0;
};

}  // namespace pando
