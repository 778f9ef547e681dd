#pragma once

// The emulated machine: devices' memory, streams, and what went wrong.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/cpu/deferred_scheduler.h"
#include "tests/emulated_cuda/emulated_cuda.h"
#include "tests/emulated_cuda/memory.h"

struct CUstream_st {
  pando::DeferredQueue queue;
  int device;
};

struct CUevent_st {
  int device;
  struct State : pando::DeferredEventState {
    std::chrono::steady_clock::time_point time;  ///< when the last record ran
  };
  std::shared_ptr<State> state = std::make_shared<State>();
};

namespace emulated_cuda {

/// Everything there is one of. Guarded by `mu`, which also sees to it that one thread of the system
/// at a time runs device work.
struct Machine {
  static constexpr int kMostDevices = 8;

  Machine();

  GuardedMemory& memory() { return *memories[static_cast<size_t>(device)]; }
  /// The device whose memory holds all of the bytes, or null.
  const GuardedMemory* Holder(const void* pointer, size_t bytes) const;
  bool InDeviceRange(const void* pointer) const;
  /// Does device work, with device memory open. Returns cudaErrorLaunchFailure if something was
  /// wrong with it, or with earlier work, until Configure: a real device that failed stays so too.
  cudaError_t WhileOpen(const std::function<void()>& work);
  /// Runs queued work until `done`.
  cudaError_t Run(const std::function<bool()>& done);
  cudaError_t RunAll();
  cudaError_t Health() const;

  std::recursive_mutex mu;
  Config config;
  Counters counters;
  pando::DeferredScheduler scheduler;
  std::vector<std::unique_ptr<GuardedMemory>> memories;  // by device
  GuardedMemory pinned{"pinned host allocation", false};
  std::unordered_map<const void*, int64_t> shared_limits;  // by kernel: cudaFuncSetAttribute
  std::string failure;                                     // the first since Configure
  const char* running = nullptr;                           // device work, by name
  static thread_local int device;                          // cudaSetDevice
};

Machine& TheMachine();

/// Notes `error` as this thread's last one, described by `text`, and returns it.
cudaError_t Error(cudaError_t error, std::string text);
/// How that was described, if the last error is `error`; else null.
const char* ErrorText(cudaError_t error);
cudaError_t TakeLastError(bool reset);

/// From here on, an access that memory's guards refuse ends the process with a line that says who
/// touched what. To be called in each thread that runs device work.
void WatchForFaults();

}  // namespace emulated_cuda
