#pragma once

#include <cstdint>
#include <string>

#include "train/trainer.h"

namespace pando {

/// Shows a run to a person: one line that renews itself on a terminal, a plain line now and then
/// elsewhere. Writes to standard error, so that standard output is the result's.
class Progress {
 public:
  /// `shown`: whether this is the rank that talks.
  Progress(int64_t steps, bool shown);
  ~Progress();

  void Step(const StepReport& report);
  void Evaluation(int64_t step, double loss);
  /// A message of its own line.
  void Note(const std::string& text);

 private:
  void ClearBar();

  int64_t steps_;
  bool shown_;
  bool terminal_;
  bool bar_shown_ = false;
  double last_shown_ = 0;
};

/// "1.5 GFLOP/s", "12.3 k": a number with a decimal prefix.
std::string WithPrefix(double value, const std::string& unit);

}  // namespace pando
