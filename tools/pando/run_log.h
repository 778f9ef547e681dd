#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/file.h"
#include "train/trainer.h"

namespace pando {

/// The run's log.jsonl: one JSON object a line, for steps and evaluations, numbers in full
/// precision. Every line is there as a whole or not at all, also where the process is killed or the
/// disk is full.
class RunLog {
 public:
  /// Opens `folder`/log.jsonl to append from step `first_step` on: lines of later steps, of a
  /// history that was lost with its process, are dropped, and so is an evaluation before that
  /// step, which a resumed run does again.
  static absl::StatusOr<RunLog> Open(const std::string& folder, int64_t first_step);

  /// Both fail where the line could not be written: the disk is full, say.
  absl::Status Step(const StepReport& report, int64_t memory_bytes);
  absl::Status Evaluation(int64_t step, double loss);
  const std::string& path() const { return out_.path(); }

 private:
  RunLog(File out, int64_t size) : out_(std::move(out)), size_(size) {}

  absl::Status Write(const std::string& line);

  File out_;
  int64_t size_;
};

}  // namespace pando
