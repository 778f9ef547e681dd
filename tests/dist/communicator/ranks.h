#pragma once

// Ranks as threads of one process, with a store in its memory: how the collectives and what stands
// on them are tested.

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "dist/communicator/gloo_communicator.h"
#include "dist/store/key_value_store.h"
#include "engine/cpu/cpu_device.h"

namespace pando {

class MemoryStore : public KeyValueStore {
 public:
  absl::Status Put(absl::string_view key, absl::string_view value) override {
    const std::lock_guard lock(mutex_);
    values_[std::string(key)] = std::string(value);
    changed_.notify_all();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Await(absl::string_view key, absl::Time deadline) override {
    std::unique_lock lock(mutex_);
    const std::string name(key);
    const auto timeout = absl::ToChronoNanoseconds(deadline - absl::Now());
    if (changed_.wait_for(lock, timeout, [&] { return values_.count(name) > 0; })) {
      return values_[name];
    }
    return absl::DeadlineExceededError(name);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

/// What ranks of a test share.
inline GlooOptions TestGloo(KeyValueStore& store, int rank, int size) {
  GlooOptions options;
  options.rank = rank;
  options.size = size;
  options.store = &store;
  options.secret = "secret";
  options.timeout = std::chrono::seconds(60);
  return options;
}

/// Runs body(rank) on a thread per rank; rethrows the first exception by rank.
inline void OnThreads(int size, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  threads.reserve(errors.size());
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors) {
    if (e) std::rethrow_exception(e);
  }
}

/// Runs body(communicator) on `size` ranks, each with its communicator; a rank that throws aborts
/// its own, so that none waits for it.
inline void OnRanks(int size, const std::function<void(Communicator&)>& body) {
  MemoryStore store;
  OnThreads(size, [&](int rank) {
    const auto communicator = NewGlooCommunicator(TestGloo(store, rank, size), CpuDevice());
    try {
      body(*communicator);
      communicator->Barrier();
    } catch (const std::exception& e) {
      communicator->Abort(e.what());
      throw;
    }
  });
}

}  // namespace pando
