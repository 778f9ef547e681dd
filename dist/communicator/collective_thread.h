#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "dist/communicator/communicator.h"

namespace pando {

/// Runs the collectives of a communicator in host memory, one after the other, on a thread of its
/// own. The first one that fails is the last one run: all later ones fail with it.
class CollectiveThread {
 public:
  /// `on_failure` is called once, on whichever thread the failure shows: it must end what is in
  /// flight and not block.
  explicit CollectiveThread(std::function<void()> on_failure);
  /// Waits for what was submitted.
  ~CollectiveThread();
  CollectiveThread(const CollectiveThread&) = delete;
  CollectiveThread& operator=(const CollectiveThread&) = delete;

  /// Queues a collective; `run` fails by throwing. Its statistics' `bytes_sent` are those given.
  /// Throws PeerLost after a failure.
  std::unique_ptr<Work> Submit(CollectiveKind kind, int64_t bytes_sent, std::function<void()> run);

  /// Fails what is in flight and all that comes, unless it has failed already.
  void Fail(const std::string& reason);
  /// Why it failed; none as long as it works.
  std::optional<std::string> failure() const;

  CommunicatorStats stats() const;

 private:
  struct Task;
  class TaskWork;

  void Loop();
  void Run(Task& task);

  std::function<void()> on_failure_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> queue_;
  std::optional<std::string> failure_;
  CommunicatorStats stats_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace pando
