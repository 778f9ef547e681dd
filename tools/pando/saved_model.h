#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/flat_parameters.h"
#include "engine/module.h"
#include "models/gpt.h"
#include "train/generate.h"
#include "train/tokenizer.h"

namespace pando {

/// A model read from disk, ready to generate on a device.
struct SavedModel {
  std::unique_ptr<ParameterRegistry> registry;
  std::unique_ptr<Gpt> model;
  std::unique_ptr<FlatParameters> parameters;
  std::shared_ptr<const Tokenizer> tokenizer;
};

/// Opens a checkpoint, a run's folder (then its newest good checkpoint) or a Hugging Face GPT-2
/// folder. `tokenizer` is as LoadTokenizer takes it; empty: the one beside the weights. Throws
/// InvalidArgument, naming what is missing or damaged.
SavedModel OpenSavedModel(const std::string& path, const std::string& tokenizer, Device& device);

/// The configuration of a Hugging Face GPT-2 folder. Throws InvalidArgument.
GptConfig ReadConfig(const std::string& folder);

/// The ids of a prompt; for an empty one, some id to start from. Throws InvalidArgument if it can't
/// be tokenized.
std::vector<int32_t> PromptIds(const Tokenizer& tokenizer, const std::string& prompt);

/// Continues `prompt` (at least one id) by `tokens` tokens, writing whole characters as they come.
void GenerateText(LanguageModel& model, Device& device, const Tokenizer& tokenizer,
                  const std::vector<int32_t>& prompt, int64_t tokens,
                  const SamplingOptions& options, std::ostream& out);

/// Throws InvalidArgument with the status' message unless it is OK.
inline void ThrowIfNotOk(const absl::Status& status) {
  if (!status.ok()) throw InvalidArgument(std::string(status.message()));
}

/// The value, or InvalidArgument with the status' message.
template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowIfNotOk(value.status());
  return *std::move(value);
}

}  // namespace pando
