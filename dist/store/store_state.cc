#include "dist/store/store_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pando {
namespace {

// Changes that are remembered for those who begin to watch late: the older half goes when there are
// more.
constexpr size_t kHistory = 65536;

absl::Status NoSuchLease(int64_t id) {
  return absl::NotFoundError(absl::StrCat("lease ", id, " has ended or never was"));
}

template <typename T>
bool Related(const T& a, Compare::Relation relation, const T& b) {
  switch (relation) {
    case Compare::Relation::kEqual:
      return a == b;
    case Compare::Relation::kGreater:
      return a > b;
    case Compare::Relation::kLess:
      return a < b;
    case Compare::Relation::kNotEqual:
      return a != b;
  }
  return false;
}

}  // namespace

bool StoreState::Holds(const Compare& c) const {
  const auto it = keys_.find(c.key);
  const KeyValue kv = it == keys_.end() ? KeyValue{} : it->second;
  switch (c.target) {
    case Compare::Target::kVersion:
      return Related(kv.version, c.relation, c.number);
    case Compare::Target::kCreateRevision:
      return Related(kv.create_revision, c.relation, c.number);
    case Compare::Target::kModRevision:
      return Related(kv.mod_revision, c.relation, c.number);
    case Compare::Target::kValue:
      // The value of a key that doesn't exist compares with nothing.
      return it != keys_.end() && Related(kv.value, c.relation, c.value);
  }
  return false;
}

absl::Status StoreState::CheckLeases(const std::vector<Operation>& operations) const {
  for (const Operation& o : operations) {
    if (o.lease != 0 && leases_.count(o.lease) == 0) return NoSuchLease(o.lease);
  }
  return absl::OkStatus();
}

absl::StatusOr<TxnResult> StoreState::Txn(const std::vector<Compare>& conditions,
                                          const std::vector<Operation>& then,
                                          const std::vector<Operation>& otherwise) {
  const std::lock_guard lock(mutex_);
  DropExpired();
  TxnResult result;
  result.succeeded = std::all_of(conditions.begin(), conditions.end(),
                                 [this](const Compare& c) { return Holds(c); });
  const std::vector<Operation>& operations = result.succeeded ? then : otherwise;
  if (const absl::Status known = CheckLeases(operations); !known.ok()) return known;
  // All changes of a transaction have one revision.
  ++revision_;
  bool changed = false;
  for (const Operation& o : operations) result.results.push_back(Do(o, &changed));
  if (!changed) --revision_;
  result.revision = revision_;
  if (changed) changed_.notify_all();
  return result;
}

OperationResult StoreState::Do(const Operation& o, bool* changed) {
  OperationResult result;
  if (o.kind == Operation::Kind::kRange) {
    for (auto it = keys_.lower_bound(o.range.key); it != keys_.end(); ++it) {
      if (!o.range.Contains(it->first)) break;
      result.found.push_back(it->second);
    }
    return result;
  }
  if (o.kind == Operation::Kind::kDelete) {
    result.deleted = Delete(o.range);
    *changed = *changed || result.deleted > 0;
    return result;
  }
  KeyValue& kv = keys_[o.range.key];
  kv.key = o.range.key;
  kv.value = o.value;
  if (kv.version++ == 0) kv.create_revision = revision_;
  kv.mod_revision = revision_;
  kv.lease = o.lease;
  Log({false, kv});
  *changed = true;
  return result;
}

/// Under the current revision.
int64_t StoreState::Delete(const KeyRange& range) {
  int64_t deleted = 0;
  for (auto it = keys_.lower_bound(range.key); it != keys_.end() && range.Contains(it->first);) {
    KeyValue gone;
    gone.key = it->first;
    gone.mod_revision = revision_;
    Log({true, gone});
    it = keys_.erase(it);
    ++deleted;
  }
  return deleted;
}

void StoreState::Log(StoreEvent event) {
  if (history_.size() >= kHistory) {
    const auto half = history_.begin() + kHistory / 2;
    forgotten_ = (half - 1)->revision;
    history_.erase(history_.begin(), half);
  }
  history_.push_back({revision_, std::move(event)});
}

void StoreState::DropKeysOf(int64_t lease) {
  std::vector<std::string> keys;
  for (const auto& [key, kv] : keys_) {
    if (kv.lease == lease) keys.push_back(key);
  }
  if (keys.empty()) return;
  ++revision_;
  for (const std::string& key : keys) Delete(KeyRange::One(key));
  changed_.notify_all();
}

void StoreState::DropExpired() {
  const Clock::time_point now = Clock::now();
  std::vector<int64_t> ended;
  for (const auto& [id, lease] : leases_) {
    if (lease.end <= now) ended.push_back(id);
  }
  for (const int64_t id : ended) {
    leases_.erase(id);
    DropKeysOf(id);
  }
}

absl::StatusOr<int64_t> StoreState::GrantLease(int64_t id, int64_t ttl) {
  const std::lock_guard lock(mutex_);
  DropExpired();
  if (ttl < 1) return absl::InvalidArgumentError(absl::StrCat("a lease of ", ttl, " seconds"));
  if (id == 0) {
    while (leases_.count(next_lease_) > 0) ++next_lease_;
    id = next_lease_++;
  }
  const auto [_, fresh] =
      leases_.try_emplace(id, Lease{ttl, Clock::now() + std::chrono::seconds(ttl)});
  if (!fresh) return absl::AlreadyExistsError(absl::StrCat("lease ", id, " exists"));
  changed_.notify_all();  // so that waiting watches know when it ends
  return id;
}

absl::StatusOr<int64_t> StoreState::KeepAlive(int64_t id) {
  const std::lock_guard lock(mutex_);
  DropExpired();
  const auto it = leases_.find(id);
  if (it == leases_.end()) return NoSuchLease(id);
  it->second.end = Clock::now() + std::chrono::seconds(it->second.ttl);
  return it->second.ttl;
}

absl::Status StoreState::RevokeLease(int64_t id) {
  const std::lock_guard lock(mutex_);
  DropExpired();
  if (leases_.erase(id) == 0) return NoSuchLease(id);
  DropKeysOf(id);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> StoreState::TimeToLive(int64_t id) {
  const std::lock_guard lock(mutex_);
  DropExpired();
  const auto it = leases_.find(id);
  if (it == leases_.end()) return NoSuchLease(id);
  return std::chrono::ceil<std::chrono::seconds>(it->second.end - Clock::now()).count();
}

std::optional<StoreState::Clock::time_point> StoreState::NextExpiry() const {
  std::optional<Clock::time_point> next;
  for (const auto& [_, lease] : leases_) next = next ? std::min(*next, lease.end) : lease.end;
  return next;
}

absl::StatusOr<std::vector<StoreEvent>> StoreState::Watch(const KeyRange& range, int64_t* next,
                                                          Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (*next == 0) *next = revision_ + 1;
  std::vector<StoreEvent> events;
  while (true) {
    DropExpired();
    if (closed_) return absl::CancelledError("the store is closing");
    if (*next <= forgotten_) {
      return absl::OutOfRangeError(absl::StrCat("changes up to revision ", forgotten_,
                                                " are forgotten: read, and watch from there"));
    }
    const auto first =
        std::lower_bound(history_.begin(), history_.end(), *next,
                         [](const Change& c, int64_t revision) { return c.revision < revision; });
    for (auto it = first; it != history_.end(); ++it) {
      if (range.Contains(it->event.kv.key)) events.push_back(it->event);
    }
    *next = std::max(*next, revision_ + 1);
    if (!events.empty() || Clock::now() >= deadline) return events;
    const std::optional<Clock::time_point> expiry = NextExpiry();
    changed_.wait_until(lock, expiry ? std::min(deadline, *expiry) : deadline);
  }
}

int64_t StoreState::revision() const {
  const std::lock_guard lock(mutex_);
  return revision_;
}

void StoreState::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace pando
