#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dist/launch/agent.h"
#include "dist/launch/verdict.h"
#include "dist/store/store_client.h"
#include "dist/store/store_server.h"

namespace pando {

/// What the agents of a job tell each other through the store: who is there, that something failed,
/// who is done. Everything stands under a lease, so that it goes with its agent.
class JobBoard {
 public:
  /// Connects (or starts the embedded store) and waits until all nodes are there. DeadlineExceeded,
  /// naming the node that is missing; AlreadyExists for a node rank that is taken.
  static absl::StatusOr<std::unique_ptr<JobBoard>> Join(const LaunchOptions& options);
  ~JobBoard();
  JobBoard(const JobBoard&) = delete;
  JobBoard& operator=(const JobBoard&) = delete;

  int world_size() const { return world_size_; }
  int first_rank() const { return first_rank_; }
  /// Node 0's, and a port that was free there: for programs that meet as torchrun's do.
  const std::string& master_address() const { return master_address_; }
  int master_port() const { return master_port_; }
  /// Of this run of the job: no other has the same.
  int64_t generation() const { return generation_; }
  /// As workers are to be told.
  const std::string& store_url() const { return url_; }
  const std::string& secret() const { return secret_; }

  /// Tells the others that something has failed here: at once, and again (`last`) when all workers
  /// have ended and no more is to be learnt.
  void ReportFailure(const Verdict& verdict, bool last);
  /// Whether one of the others has told, or has gone without a word.
  bool OthersFailed() const { return others_failed_; }
  /// Of the other nodes, so far; and whether there will be no more.
  std::vector<Verdict> Verdicts();
  bool HasAllVerdicts();
  /// How long it takes at most until a node that has gone is known to have.
  static std::chrono::milliseconds LeaseTime();
  /// Until all nodes have found each other, or can't be waited for: who leaves before takes its
  /// entry away from those that have not read it yet.
  void AwaitAllJoined();
  /// This node's workers have ended well.
  void ReportDone();
  /// Whether all other nodes' have, or are gone.
  bool OthersAreDone();

 private:
  explicit JobBoard(const LaunchOptions& options) : options_(options) {}

  absl::Status Connect();
  absl::Status TakePlace();
  absl::Status AwaitOthers();
  void KeepLease();
  void PutVerdict(const std::string& what, const Verdict& verdict);
  void WatchOthers();
  void NoteOther(const StoreEvent& event);
  void NoteLost(int node);
  std::string Key(const std::string& what, int node) const;

  LaunchOptions options_;
  std::string url_, secret_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<StoreClient> store_;
  int64_t lease_ = 0;
  int world_size_ = 0, first_rank_ = 0;
  std::vector<int> first_ranks_;  ///< of every node
  int64_t generation_ = 0, watch_from_ = 0;
  std::string master_address_;
  int master_port_ = 0;
  std::atomic<bool> others_failed_{false};
  std::atomic<bool> closing_{false};
  std::mutex mutex_;
  std::vector<Verdict> verdicts_;  ///< guarded by it
  std::set<int> finished_;         ///< so are nodes that have nothing more to say
  std::set<int> joined_;           ///< and those that have found all others
  std::vector<std::thread> threads_;
};

}  // namespace pando
