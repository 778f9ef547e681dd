#pragma once

// What devices for tests have in common whose streams run nothing until somebody synchronises: the
// queues of all streams, and the die that picks which goes on.

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/random.h"

namespace pando {

/// How often an event was recorded (submitted) and how often that record has run. Shared with the
/// queues, so that a destroyed event does no harm to work that still refers to it.
struct DeferredEventState {
  int64_t recorded = 0;
  int64_t done = 0;
};

/// One piece of queued work: `ready` says whether it may run yet.
struct DeferredTask {
  std::function<bool()> ready;
  std::function<void()> run;
};

/// The work of one stream, in order.
using DeferredQueue = std::deque<DeferredTask>;

/// All queues of a device and the order, drawn from a seed, in which they advance. Thread-safe.
class DeferredScheduler {
 public:
  /// `dropped_wait` counts, from 0, the waits for events to the one that is left out; -1: none.
  explicit DeferredScheduler(uint64_t seed, int64_t dropped_wait = -1);

  /// Begins anew with another seed and count of waits.
  void Reset(uint64_t seed, int64_t dropped_wait);
  /// A queue takes part from here to its Remove, which runs what it still holds.
  void Add(DeferredQueue* queue);
  void Remove(DeferredQueue* queue);
  /// Queues `run`, which runs once `ready` says so.
  void Push(DeferredQueue& queue, std::function<void()> run);
  void PushWhen(DeferredQueue& queue, std::function<bool()> ready, std::function<void()> run);
  /// Runs tasks, each from a queue drawn at random among those that can go on, until `done`.
  /// Throws DeviceError if none can.
  void RunUntil(const std::function<bool()>& done);
  /// Whether the next wait is the one to leave out.
  bool DropsNextWait();
  bool AllEmpty() const;

 private:
  DeferredQueue& Draw(const std::vector<DeferredQueue*>& ready);

  mutable std::recursive_mutex mu_;
  RandomKey key_;
  uint64_t draws_ = 0;
  DeferredQueue* running_ = nullptr;  // only compared: it may be gone
  int64_t run_left_ = 0;
  int64_t waits_ = 0;
  int64_t dropped_wait_ = -1;
  std::vector<DeferredQueue*> queues_;
};

}  // namespace pando
