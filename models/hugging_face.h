#pragma once

// Between Pando's models and Hugging Face's folders: config.json, and the names of the weights.

#include <string>

#include "absl/status/statusor.h"
#include "models/gpt.h"

namespace pando {

/// The text of a config.json that transformers loads as GPT-2.
std::string GptConfigToJson(const GptConfig& config);

/// Reads a GPT-2 config.json (Hugging Face's, or one that GptConfigToJson wrote). `name` (a path)
/// starts the error messages.
absl::StatusOr<GptConfig> GptConfigFromJson(const std::string& json, const std::string& name);

}  // namespace pando
