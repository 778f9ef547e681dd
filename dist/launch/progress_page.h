#pragma once

// What a worker is at, in memory that it shares with its agent: so that of ranks that all wait for
// each other the one at fault can be told.

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace pando {

enum class Phase : int64_t {
  kStarting,
  kForming,
  kForward,
  kBackward,
  kGather,
  kReduceScatter,
  kOptimizer,
  kEvaluation,
  kSave,
  kDone
};

/// "forming".
const char* Name(Phase phase);

/// The page. Zeroes mean: nothing heard yet.
struct ProgressPage {
  std::atomic<int64_t> heartbeat_ms;  ///< CLOCK_MONOTONIC when the process last ran
  std::atomic<int64_t> phase;
  std::atomic<int64_t> step;
  std::atomic<int64_t> collectives;  ///< started
};

/// The agent's side: memory of its own, of which a worker inherits the file descriptor.
class SharedProgress {
 public:
  static absl::StatusOr<std::unique_ptr<SharedProgress>> Create();
  ~SharedProgress();
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  /// Closed when a program is executed, unless the child clears that.
  int fd() const { return fd_; }
  const ProgressPage& page() const { return *page_; }

 private:
  SharedProgress(int fd, ProgressPage* page) : fd_(fd), page_(page) {}

  int fd_;
  ProgressPage* page_;
};

/// The worker's side: finds the page that the environment names, if it does, and keeps its heart
/// beating on a thread of its own until the process ends. Once per process.
void StartHeartbeat();
/// Cheap, and without effect where nobody listens.
void ReportPhase(Phase phase);
/// What the process was last said to be at.
Phase CurrentPhase();
/// A phase within another one: while this lives.
class PhaseWithin {
 public:
  explicit PhaseWithin(Phase phase) : before_(CurrentPhase()) { ReportPhase(phase); }
  ~PhaseWithin() { ReportPhase(before_); }
  PhaseWithin(const PhaseWithin&) = delete;
  PhaseWithin& operator=(const PhaseWithin&) = delete;

 private:
  Phase before_;
};
void ReportStep(int64_t step);
void ReportCollective();

}  // namespace pando
