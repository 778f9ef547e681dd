#pragma once

// The one cache for descriptors, plans and primitives of libraries (oneDNN, cuBLASLt, cuDNN): what
// is dear to make and depends only on a key.

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/hash/hash.h"

namespace pando {

/// Values made by all BoundedCaches of this process since it started. Constant from one step to the
/// next once training has warmed up; a test or a metric watches that.
inline std::atomic<int64_t> bounded_cache_creations{0};

/// What one cache has done so far.
struct CacheStats {
  int64_t hits;       ///< found ready, or being made by another thread
  int64_t creations;  ///< made (a failed attempt doesn't count)
  int64_t evictions;  ///< dropped because the cache was full
  int64_t size;       ///< held now
};

/// A map from Key to shared Value that holds at most `capacity` entries and drops the one unused
/// for longest. Key is hashed by absl::Hash and must name *all* that the value depends on (device,
/// thread count and alignment included). Thread-safe: one thread makes a missing value while others
/// that want the same one wait, and others that want another don't.
template <typename Key, typename Value>
class BoundedCache {
 public:
  explicit BoundedCache(int64_t capacity) : capacity_(capacity) {}

  /// The value of `key`; `make(key)`, returning a Value, is called if there is none. What `make`
  /// throws passes through, and the next call tries again. The value outlives its eviction for as
  /// long as the caller holds it.
  template <typename Make>
  std::shared_ptr<const Value> Get(const Key& key, const Make& make) {
    const std::shared_ptr<Slot> slot = FindOrInsert(key);
    const std::lock_guard<std::mutex> making(slot->mutex);
    if (!slot->value.has_value()) {
      slot->value.emplace(make(key));
      bounded_cache_creations.fetch_add(1, std::memory_order_relaxed);
      creations_.fetch_add(1, std::memory_order_relaxed);
    } else {
      hits_.fetch_add(1, std::memory_order_relaxed);
    }
    return std::shared_ptr<const Value>(slot, &*slot->value);
  }

  CacheStats stats() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {.hits = hits_.load(std::memory_order_relaxed),
            .creations = creations_.load(std::memory_order_relaxed),
            .evictions = evictions_,
            .size = static_cast<int64_t>(slots_.size())};
  }

  /// Drops all entries; values in use live on. Counters go on.
  void Clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    slots_.clear();
    by_use_.clear();
  }

 private:
  struct Slot {
    std::mutex mutex;  // held while the value is being made
    std::optional<Value> value;
  };
  struct Entry {
    std::shared_ptr<Slot> slot;
    typename std::list<Key>::iterator use;
  };

  std::shared_ptr<Slot> FindOrInsert(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = slots_.find(key);
    if (found != slots_.end()) {
      by_use_.splice(by_use_.begin(), by_use_, found->second.use);
      return found->second.slot;
    }
    if (static_cast<int64_t>(slots_.size()) >= capacity_) {
      slots_.erase(by_use_.back());
      by_use_.pop_back();
      ++evictions_;
    }
    by_use_.push_front(key);
    return slots_.emplace(key, Entry{std::make_shared<Slot>(), by_use_.begin()}).first->second.slot;
  }

  const int64_t capacity_;
  mutable std::mutex mutex_;
  std::list<Key> by_use_;  // latest first
  std::unordered_map<Key, Entry, absl::Hash<Key>> slots_;
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> creations_{0};
  int64_t evictions_ = 0;
};

}  // namespace pando
