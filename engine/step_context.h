#pragma once

#include <cstdint>
#include <string>

#include "engine/random.h"
#include "engine/tensor.h"

namespace pando {

/// What a forward pass draws its randomness from: not the rank, not the split, only which samples
/// these are and which step it is.
struct StepContext {
  uint64_t seed = 0;
  int64_t step = 0;
  /// Global index of each sample of the micro-batch, i64 [B]. May be undefined where nothing is
  /// drawn (evaluation, dropout 0).
  Tensor sample_ids;
  bool training = false;

  /// The key of draws made by the module called `name`.
  RandomKey KeyFor(const std::string& name) const {
    return {.seed = seed, .site = HashName(name.c_str()), .step = static_cast<uint32_t>(step)};
  }
};

}  // namespace pando
