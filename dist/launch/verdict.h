#pragma once

// Who is to blame when a job ends before its time. Not whom ranks accuse: in a stalled ring
// everyone accuses a neighbour. What counts is who died by itself, whose process does not run, and
// who is behind.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dist/launch/exit_code.h"
#include "dist/launch/worker_process.h"

namespace pando {

/// What an agent knows of one of its workers when it decides.
struct WorkerReport {
  int rank = 0;
  bool ended = false;     ///< before the agent ended the rest
  ExitReason exit;        ///< if so
  int64_t ended_ms = 0;   ///< and when, since 1970: comparable between nodes
  bool heard = false;     ///< its heart has ever beaten
  int64_t silent_ms = 0;  ///< since its heart last beat
  Phase phase = Phase::kStarting;
  int64_t step = 0;
  int64_t collectives = 0;
  std::vector<std::string> last_lines;
};

/// The worst of a node, and of a job: smaller `weight` weighs more.
struct Verdict {
  enum Weight : int { kDied = 0, kNodeLost = 1, kSilent = 2, kBehind = 3, kNobody = 4 };
  Weight weight = kNobody;
  int64_t order = 0;  ///< among equal weights: the smallest is to blame
  int rank = -1;
  int exit_code = kPeerLost;  ///< for the job to end with
  std::string text;           ///< "rank 3 was killed by signal 9 (Killed) in the forward of step 7"
  std::vector<std::string> last_lines;

  std::string Serialize() const;
  static absl::StatusOr<Verdict> Parse(const std::string& text);
  bool operator<(const Verdict& other) const {
    return weight != other.weight ? weight < other.weight : order < other.order;
  }
};

/// Of one node's workers, or of several nodes': the one to blame; kNobody if there is none.
Verdict Judge(const std::vector<WorkerReport>& reports);

}  // namespace pando
