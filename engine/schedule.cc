#include "engine/schedule.h"

#include <algorithm>
#include <cmath>

namespace pando {

double Schedule::At(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  }
  if (kind == Kind::kConstant) return peak;
  const double span = static_cast<double>(std::max<int64_t>(1, steps - warmup_steps));
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / span);
  const double left = kind == Kind::kLinear ? 1 - done : 0.5 * (1 + std::cos(M_PI * done));
  return minimum + (peak - minimum) * left;
}

}  // namespace pando
