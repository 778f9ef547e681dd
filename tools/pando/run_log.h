#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/trainer.h"

namespace pando {

/// The run's log.jsonl: one JSON object a line, for steps and evaluations, numbers in full
/// precision.
class RunLog {
 public:
  /// Opens `folder`/log.jsonl to append from step `first_step` on: lines of later steps, of a
  /// history that was lost with its process, are dropped.
  static absl::StatusOr<RunLog> Open(const std::string& folder, int64_t first_step);

  void Step(const StepReport& report, int64_t memory_bytes);
  void Evaluation(int64_t step, double loss);
  const std::string& path() const { return path_; }

 private:
  explicit RunLog(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::ofstream out_;
};

}  // namespace pando
