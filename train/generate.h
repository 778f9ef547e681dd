#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/language_model.h"

namespace pando {

/// How the next token is drawn.
struct SamplingOptions {
  double temperature = 1.0;  ///< of the logits; 0: always the most likely token
  int64_t top_k = 0;         ///< draw among the k most likely; 0: among all
  double top_p = 1.0;        ///< draw among the fewest tokens whose probabilities sum to p
  uint64_t seed = 1;
};

/// Throws InvalidArgument, saying which option makes no sense.
void CheckSampling(const SamplingOptions& options);

/// Draws a token from `logits` (one row, the valid vocabulary only). `position` counts the draws,
/// so that equal seeds draw equal texts.
int32_t SampleToken(std::vector<float> logits, const SamplingOptions& options, int64_t position);

/// Goes on from `prompt` (at least one token) for `count` tokens, calling `emit` with each. Beyond
/// the model's context it starts again from the last half of it. Throws InvalidArgument.
void Generate(LanguageModel& model, Device& device, const std::vector<int32_t>& prompt,
              int64_t count, const SamplingOptions& options,
              const std::function<void(int32_t)>& emit);

}  // namespace pando
