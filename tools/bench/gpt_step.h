#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/flat_parameters.h"
#include "engine/module.h"
#include "models/gpt.h"
#include "train/train_step.h"

namespace pando {

/// Which step is timed.
struct GptStepOptions {
  GptConfig model = {.context = 64};
  int64_t micro_batch = 4;
  std::string precision = "f32";
  bool recompute = false;

  int64_t tokens() const { return micro_batch * model.context; }
  DType dtype() const { return precision == "bf16" ? DType::kBF16 : DType::kF32; }
};

/// Declares --layers, --heads, --width, --context, --vocab, --micro-batch, --precision and
/// --recompute.
void AddGptStepOptions(CLI::App& app, GptStepOptions& options);

/// A GPT, and training steps of it on random tokens.
class GptStep {
 public:
  /// Throws InvalidArgument, OutOfMemory.
  explicit GptStep(const GptStepOptions& options);

  StepResult Run();

  const Gpt& model() const { return model_; }
  const ParameterRegistry& registry() const { return registry_; }
  FlatParameters& parameters() { return flat_; }

 private:
  GptStepOptions options_;
  ParameterRegistry registry_;
  Gpt model_;
  FlatParameters flat_;
  TrainStep step_;
  std::vector<int32_t> tokens_;  // one more than a batch has: targets are the tokens behind
  int64_t done_ = 0;
};

}  // namespace pando
