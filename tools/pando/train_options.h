#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "models/gpt.h"
#include "tools/pando/device_option.h"
#include "tools/pando/rank_options.h"
#include "train/trainer.h"

namespace pando {

/// What `pando train` is told.
struct TrainOptions {
  std::string data;
  std::string tokenizer;
  std::string model;  ///< a preset, or empty
  GptConfig gpt;
  TrainerOptions trainer;
  RankOptions ranks;
  std::string schedule = "cosine";
  std::string precision = "f32";
  std::string device = "auto";
  std::string out = "pando-run";
  std::string resume = "auto";
  std::string init_from;
  EmulationOptions emulation;
  std::string memory_budget;
  int64_t memory_budget_bytes = 0;  ///< 0: not given
  std::string profile;
  int64_t checkpoint_interval = 250;
  int keep = 2;
  int threads = 0;
  bool json = false;
  bool no_bias = false;
  double min_lr = -1;

  /// Tokens of a training sample.
  int64_t SampleLength() const { return trainer.length > 0 ? trainer.length : gpt.context; }
};

/// Declares the options of `pando train`.
void AddTrainOptions(CLI::App& command, TrainOptions& options);

/// Fills in what follows from the options that were given (`command` has been parsed). Throws
/// InvalidArgument, naming the option, for values that make no sense.
void CompleteTrainOptions(const CLI::App& command, TrainOptions& options);

/// "16GB", "512MiB", "1000000" in bytes; throws InvalidArgument.
int64_t ParseBytes(const std::string& text);

}  // namespace pando
