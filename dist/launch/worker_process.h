#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dist/launch/line_buffer.h"
#include "dist/launch/progress_page.h"

namespace pando {

/// How a process ended.
struct ExitReason {
  int code = 0;    ///< if it ended by itself
  int signal = 0;  ///< that ended it; 0: none
  /// Meanwhile the kernel has killed a process for lack of memory: this one, as it seems.
  bool out_of_memory = false;
  bool ok() const { return code == 0 && signal == 0; }
  /// "was killed by signal 9 (Killed)", "ended with exit code 1".
  std::string ToString() const;
};

/// One worker that an agent has started: its output comes through pipes, and it dies with the
/// agent.
class WorkerProcess {
 public:
  /// Starts `command` with `environment` added to this process's. `on_out` and `on_error` get its
  /// lines. NotFound or PermissionDenied if there is no such program.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(
      const std::vector<std::string>& command, std::map<std::string, std::string> environment,
      LineBuffer::OnLine on_out, LineBuffer::OnLine on_error);
  /// Kills whatever is left of it.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// To the process and all that it has started.
  void Signal(int signal) const;
  /// Pipes to poll; -1 once closed.
  int out_fd() const { return out_; }
  int error_fd() const { return error_; }
  /// Takes in what the pipes have, without waiting.
  void Read();
  /// Whether it has ended; if so, what it had written is read too.
  bool Reap();
  const std::optional<ExitReason>& exit() const { return exit_; }
  const ProgressPage& progress() const { return progress_->page(); }
  /// Of its errors; of its output if it has none.
  const std::deque<std::string>& last_lines() const {
    return errors_.last_lines().empty() ? lines_.last_lines() : errors_.last_lines();
  }

 private:
  WorkerProcess(std::unique_ptr<SharedProgress> progress, LineBuffer::OnLine on_out,
                LineBuffer::OnLine on_error)
      : progress_(std::move(progress)), lines_(std::move(on_out)), errors_(std::move(on_error)) {}

  std::unique_ptr<SharedProgress> progress_;
  LineBuffer lines_, errors_;
  pid_t pid_ = -1;
  int out_ = -1, error_ = -1;
  int64_t memory_kills_before_ = 0;
  std::optional<ExitReason> exit_;
};

}  // namespace pando
