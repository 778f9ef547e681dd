#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando {

/// The file that marks a folder as a run's: checkpoints, log and all. Pando writes into no other
/// folder that is not empty.
inline constexpr char kRunMarkerFile[] = "pando-run.json";

/// The file that a running program has locked (flock).
inline constexpr char kRunLockFile[] = ".pando-lock";

/// The folder of a run, checked and locked, so that no two programs write into it. The lock ends
/// with this object, or with the process.
class RunFolder {
 public:
  /// Makes `root` ready: creates it where it is missing, tries that it can be written, refuses
  /// (FailedPrecondition) a folder with other people's files or one that another program uses,
  /// cleans up after killed programs, and refuses (ResourceExhausted) a disk without room for two
  /// checkpoints of `checkpoint_bytes` bytes: better now than at the first save, hours from here.
  static absl::StatusOr<RunFolder> Prepare(const std::string& root, int64_t checkpoint_bytes);

  RunFolder(RunFolder&& other) noexcept
      : path_(std::move(other.path_)),
        notes_(std::move(other.notes_)),
        lock_fd_(std::exchange(other.lock_fd_, -1)) {}
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();

  const std::string& path() const { return path_; }

  /// What Prepare has cleaned up or could not check, one line each, for the log.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  absl::Status Lock();

  std::string path_;
  std::vector<std::string> notes_;
  int lock_fd_ = -1;  // -1 also where the file system has no locks
};

}  // namespace pando
