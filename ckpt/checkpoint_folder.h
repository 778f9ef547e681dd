#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The names that checkpoints have in a run's folder, and how they appear and disappear. The names
// say in which state a folder is, so that a program killed between any two calls leaves nothing
// that is taken for what it is not:
//   step-00001234                    a checkpoint, complete and durable
//   .step-00001234.tmp-PID-RANDOM    being written: never read
//   .trash-step-00001234-PID-RANDOM  being deleted: never read
//   .aside-step-00001234-PID-RANDOM  out of the way while a new one takes its name, where the file
//                                    system can't exchange names; put back if none took it

namespace pando {

/// "step-00001234".
std::string StepFolderName(int64_t step);

/// False unless `name` is what StepFolderName makes of some step.
bool ParseStepFolderName(absl::string_view name, int64_t* step);

/// Steps of all folders with such names in `root`, ascending.
absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& root);

/// Removes a folder that holds nothing but what a checkpoint may hold, manifest first; otherwise
/// removes nothing and returns FailedPrecondition naming the foreign file.
absl::Status RemoveCheckpointFolder(const std::string& folder);

/// Gives the complete, synced folder `temporary` in `root` the name of `step`, atomically and
/// durably. A checkpoint that has the name already stays valid until then and is removed after it
/// (kept as step-N.old-PID-RANDOM if it holds foreign files). `may_exchange` false: as on file
/// systems that can't exchange names (for tests).
absl::Status PublishCheckpoint(const std::string& root, const std::string& temporary, int64_t step,
                               bool may_exchange = true);

/// Deletes the checkpoint of `step` in such a way that a half-deleted one is never read.
/// FailedPrecondition if it holds foreign files: then it stays.
absl::Status DeleteCheckpoint(const std::string& root, int64_t step);

/// Removes or puts back what a killed program has left in `root`, and reports in `notes`. What is
/// not recognised stays. Only for the one who holds the folder's lock.
absl::Status CleanLeftovers(const std::string& root, std::vector<std::string>* notes);

}  // namespace pando
