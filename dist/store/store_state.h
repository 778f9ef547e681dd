#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dist/store/types.h"

namespace pando {

/// The embedded store's contents, in memory: keys with revisions, leases, and the history of
/// changes that watchers follow. Semantics are etcd's. Thread-safe.
class StoreState {
 public:
  using Clock = std::chrono::steady_clock;

  /// All conditions are looked at, and all operations done, at once. NotFound for an unknown lease,
  /// in which case nothing is done.
  absl::StatusOr<TxnResult> Txn(const std::vector<Compare>& conditions,
                                const std::vector<Operation>& then,
                                const std::vector<Operation>& otherwise);

  /// A lease that ends `ttl` seconds (at least 1) from now, and then takes its keys with it. `id`
  /// 0: a new one is made. AlreadyExists.
  absl::StatusOr<int64_t> GrantLease(int64_t id, int64_t ttl);
  /// Starts its time anew and returns it; NotFound.
  absl::StatusOr<int64_t> KeepAlive(int64_t id);
  absl::Status RevokeLease(int64_t id);
  /// Seconds left; NotFound.
  absl::StatusOr<int64_t> TimeToLive(int64_t id);

  /// Changes of `range` of revision `from` (0: from here on) and later: waits until there are any,
  /// or until `deadline`; `next` becomes the revision to go on from. OutOfRange if that far back is
  /// forgotten; Cancelled once Close was called.
  absl::StatusOr<std::vector<StoreEvent>> Watch(const KeyRange& range, int64_t* next,
                                                Clock::time_point deadline);

  int64_t revision() const;
  /// Ends all watches.
  void Close();

 private:
  struct Lease {
    int64_t ttl;
    Clock::time_point end;
  };
  struct Change {
    int64_t revision;
    StoreEvent event;
  };

  void DropExpired();
  void DropKeysOf(int64_t lease);
  bool Holds(const Compare& c) const;
  absl::Status CheckLeases(const std::vector<Operation>& operations) const;
  OperationResult Do(const Operation& operation, bool* changed);
  int64_t Delete(const KeyRange& range);
  void Log(StoreEvent event);
  std::optional<Clock::time_point> NextExpiry() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t revision_ = 1;
  int64_t forgotten_ = 0;  ///< changes up to this revision are no longer in history_
  std::map<std::string, KeyValue> keys_;
  std::map<int64_t, Lease> leases_;
  std::vector<Change> history_;
  int64_t next_lease_ = 1;
  bool closed_ = false;
};

}  // namespace pando
