#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace pando {

struct LossScaleOptions {
  double initial = 65536;          ///< a power of two, at least 1
  int64_t growth_interval = 2000;  ///< steps without overflow after which the scale doubles
};

/// Dynamic loss scaling (Micikevicius et al., "Mixed precision training", ICLR 2018): f16 has too
/// narrow a range for gradients, so the loss is multiplied by a factor that is as large as they
/// bear. A power of two, so that it changes nothing but where f16 overflows and underflows.
class LossScale {
 public:
  /// Throws InvalidArgument.
  explicit LossScale(const LossScaleOptions& options = {});

  double value() const { return value_; }
  /// Steps without overflow since the value last changed.
  int64_t good_steps() const { return good_steps_; }

  void OnGoodStep();
  /// Halves the value. False, and nothing changed, at 1: then it isn't the scale that makes
  /// gradients overflow.
  [[nodiscard]] bool OnOverflow();

  /// What a checkpoint's metadata says of it.
  void WriteTo(std::map<std::string, std::string>& metadata) const;
  /// Goes on from there; a checkpoint that says nothing, of a run without loss scaling, changes
  /// nothing. DataLoss if what it says can't be.
  absl::Status ReadFrom(const std::map<std::string, std::string>& metadata);

 private:
  int64_t growth_interval_;
  double value_;
  int64_t good_steps_ = 0;
};

}  // namespace pando
