#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "dist/store/key_value_store.h"
#include "dist/store/types.h"

namespace pando {

struct StoreOptions {
  /// "http://127.0.0.1:2379" or "https://...": members of one store, any of which answers.
  std::vector<std::string> endpoints;
  std::string secret = {};               ///< of an embedded store
  std::string user = {}, password = {};  ///< of an etcd with authentication
  std::string ca_file = {};              ///< certificates to trust for https; empty: the system's
  /// How long a call tries, over all members.
  absl::Duration timeout = absl::Seconds(10);
};

/// "https://a:2379,https://b:2379" in parts; InvalidArgument for what isn't such a list.
absl::StatusOr<std::vector<std::string>> ParseEndpoints(const std::string& text);

/// Client of etcd's v3 JSON API: of a real etcd, or of an embedded StoreServer. A call that finds a
/// member gone goes on with the next one until its time is up; one that changes something is
/// repeated only where it can't have been done. Errors are Unavailable (nobody answered in time),
/// Unauthenticated, or what the store says, and name the endpoint. Thread-safe.
class StoreClient : public KeyValueStore {
 public:
  /// Makes sure that the store answers and lets us in.
  static absl::StatusOr<std::unique_ptr<StoreClient>> Connect(const StoreOptions& options);
  ~StoreClient() override;

  absl::Status Put(absl::string_view key, absl::string_view value) override;
  absl::Status Put(absl::string_view key, absl::string_view value, int64_t lease);
  absl::StatusOr<std::string> Await(absl::string_view key, absl::Time deadline) override;

  absl::StatusOr<std::optional<KeyValue>> Get(const std::string& key);
  /// All keys of the range and, in `revision` unless null, the store's revision.
  absl::StatusOr<std::vector<KeyValue>> List(const KeyRange& range, int64_t* revision = nullptr);
  absl::StatusOr<int64_t> Delete(const KeyRange& range);
  /// Unknown if the connection broke before the answer came: it may have been done.
  absl::StatusOr<TxnResult> Txn(const std::vector<Compare>& conditions,
                                const std::vector<Operation>& then,
                                const std::vector<Operation>& otherwise = {});

  /// Of `ttl` seconds; etcd lengthens short ones to 2. Returns its id.
  absl::StatusOr<int64_t> GrantLease(int64_t ttl);
  /// NotFound if it has ended.
  absl::Status KeepAlive(int64_t lease);
  absl::Status RevokeLease(int64_t lease);

  /// Calls `on_event` with all changes of `range` from revision `from` on (0: from now on), in
  /// order, each once, across broken connections, until it returns false (Ok) or the deadline comes
  /// (DeadlineExceeded). OutOfRange if that far back is forgotten.
  absl::Status Watch(const KeyRange& range, int64_t from, absl::Time deadline,
                     const std::function<bool(const StoreEvent&)>& on_event);

 private:
  class Http;
  explicit StoreClient(const StoreOptions& options);

  std::unique_ptr<Http> http_;
};

}  // namespace pando
