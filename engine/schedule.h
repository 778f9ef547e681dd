#pragma once

#include <cstdint>

namespace pando {

/// Learning rate over steps: linear warm-up, then constant, cosine or linear decay to a minimum.
struct Schedule {
  enum class Kind { kConstant, kCosine, kLinear };
  Kind kind = Kind::kCosine;
  double peak = 6e-4;
  double minimum = 0;        ///< reached at the last step; unused by kConstant
  int64_t warmup_steps = 0;  ///< step s < warmup_steps has peak * (s + 1) / (warmup_steps + 1)
  int64_t steps = 1;         ///< length of the run

  /// Rate of step `step`, counted from 0.
  double At(int64_t step) const;
};

}  // namespace pando
