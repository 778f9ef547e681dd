#pragma once

#include <sys/types.h>

#include <memory>

#include "absl/status/statusor.h"

namespace pando {

/// A small process that outlives its agent for a moment: it kills the workers' process groups when
/// the agent has gone, however it went. (The kernel's own signal at a parent's death reaches the
/// workers, but not what they have started.)
class Guardian {
 public:
  /// ResourceExhausted if there can be no further process.
  static absl::StatusOr<std::unique_ptr<Guardian>> Start();
  /// Kills what is still watched; waits for the guardian's end.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// From now on, or no longer: a group's number may be given to others once its processes are
  /// gone.
  void Watch(pid_t group) const { Tell(group); }
  void Forget(pid_t group) const { Tell(-group); }
  pid_t pid() const { return pid_; }

 private:
  Guardian(pid_t pid, int pipe) : pid_(pid), pipe_(pipe) {}
  void Tell(pid_t group) const;

  pid_t pid_;
  int pipe_;
};

/// Kills this process's children but `spared`, and theirs, until there are none. The process must
/// be a subreaper (PR_SET_CHILD_SUBREAPER) to get children's orphans too, even those in sessions of
/// their own. Gives up on processes that a second does not end.
void KillDescendants(pid_t spared);

}  // namespace pando
