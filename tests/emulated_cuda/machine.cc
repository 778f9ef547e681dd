#include "tests/emulated_cuda/machine.h"

#include <utility>

#include "engine/error.h"
#include "tests/emulated_cuda/grid.h"

namespace emulated_cuda {

thread_local int Machine::device = 0;

Machine& TheMachine() {
  static Machine* machine = new Machine;  // lives as long as the process
  return *machine;
}

Machine::Machine() : scheduler(config.seed) {
  for (int i = 0; i < kMostDevices; ++i) {
    memories.push_back(std::make_unique<GuardedMemory>("device allocation", true));
  }
  WatchForFaults();
}

const GuardedMemory* Machine::Holder(const void* pointer, size_t bytes) const {
  for (const auto& m : memories) {
    if (m->Holds(pointer, bytes)) return m.get();
  }
  return nullptr;
}

bool Machine::InDeviceRange(const void* pointer) const {
  for (const auto& m : memories) {
    if (m->InRange(pointer)) return true;
  }
  return false;
}

cudaError_t Machine::WhileOpen(const std::function<void()>& work) {
  WatchForFaults();
  for (const auto& m : memories) m->Open();
  try {
    work();
  } catch (const pando::DeviceError& e) {
    Fail(e.what());
  }
  for (const auto& m : memories) {
    const std::string damage = m->TakeDamage();
    if (!damage.empty()) Fail(damage);
    m->Close();
  }
  return Health();
}

cudaError_t Machine::Health() const {
  return failure.empty() ? cudaSuccess : Error(cudaErrorLaunchFailure, failure);
}

cudaError_t Machine::Run(const std::function<bool()>& done) {
  const std::lock_guard<std::recursive_mutex> lock(mu);
  if (done()) return Health();
  return WhileOpen([&] { scheduler.RunUntil(done); });
}

cudaError_t Machine::RunAll() {
  return Run([this] { return scheduler.AllEmpty(); });
}

void Configure(const Config& config) {
  Machine& m = TheMachine();
  const std::lock_guard<std::recursive_mutex> lock(m.mu);
  m.RunAll();
  m.failure.clear();
  m.config = config;
  m.scheduler.Reset(config.seed, config.dropped_wait);
}

const Config& CurrentConfig() { return TheMachine().config; }
Counters GetCounters() {
  const std::lock_guard<std::recursive_mutex> lock(TheMachine().mu);
  return TheMachine().counters;
}

cudaError_t Queue(cudaStream_t stream, std::string name, std::function<void()> run) {
  Machine& m = TheMachine();
  const std::lock_guard<std::recursive_mutex> lock(m.mu);
  if (stream == nullptr) {
    return Error(cudaErrorInvalidResourceHandle, "the default stream is not emulated");
  }
  m.scheduler.Push(stream->queue, [&m, name = std::move(name), run = std::move(run)] {
    m.running = name.c_str();
    run();
    m.running = nullptr;
  });
  return cudaSuccess;
}

cudaError_t QueueLaunch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                        cudaStream_t stream, std::function<void()> thread) {
  Machine& m = TheMachine();
  const std::lock_guard<std::recursive_mutex> lock(m.mu);
  if (stream != nullptr && stream->device != Machine::device) {
    return Error(cudaErrorInvalidResourceHandle, "launch on a stream of another device");
  }
  const auto refuse = [](const char* why) { return Error(cudaErrorInvalidConfiguration, why); };
  if (block.y != 1 || block.z != 1 || block.x == 0 || block.x % 32 != 0) {
    return refuse("a block must have one dimension, a multiple of 32");
  }
  if (block.x > 1024) return refuse("a block of more than 1024 threads");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return refuse("a grid without blocks");
  if (grid.x > 0x7FFFFFFFU || grid.y > 65535 || grid.z > 65535) return refuse("grid too large");
  const auto limit = m.shared_limits.find(kernel);
  const int64_t most = limit == m.shared_limits.end() ? 48 << 10 : limit->second;
  if (static_cast<int64_t>(shared_bytes) > most) {
    return refuse("more shared memory than the kernel was allowed (cudaFuncSetAttribute)");
  }
  const uint64_t seed = m.config.seed * 1000003 + static_cast<uint64_t>(m.counters.launches++);
  Grid g{.kernel = kernel,
         .grid = grid,
         .block = block.x,
         .shared_bytes = shared_bytes,
         .thread = std::move(thread)};
  return Queue(stream, "kernel", [&m, g = std::move(g), seed] {
    const std::string error = RunGrid(g, seed, &m.counters.barriers);
    if (!error.empty()) Fail(error);
  });
}

bool ReachableFromDevice(const void* pointer) {
  Machine& m = TheMachine();
  const std::lock_guard<std::recursive_mutex> lock(m.mu);
  return pointer == nullptr || m.InDeviceRange(pointer) || m.pinned.InRange(pointer);
}

void Fail(const std::string& message) {
  Machine& m = TheMachine();
  const std::lock_guard<std::recursive_mutex> lock(m.mu);
  if (m.failure.empty()) m.failure = message;
}

bool IsDeviceMemory(const void* pointer, size_t bytes) {
  Machine& m = TheMachine();
  const std::lock_guard<std::recursive_mutex> lock(m.mu);
  return m.Holder(pointer, bytes) != nullptr;
}

void CountLibraryObject() {
  Machine& m = TheMachine();
  const std::lock_guard<std::recursive_mutex> lock(m.mu);
  ++m.counters.library_objects;
}

namespace {
struct LastError {
  cudaError_t error = cudaSuccess;
  std::string text;  // of the error described last, which may have been reset since
  cudaError_t described = cudaSuccess;
};
thread_local LastError last_error;
}  // namespace

cudaError_t Error(cudaError_t error, std::string text) {
  last_error = {.error = error, .text = std::move(text), .described = error};
  return error;
}

const char* ErrorText(cudaError_t error) {
  return last_error.described == error && error != cudaSuccess ? last_error.text.c_str() : nullptr;
}

cudaError_t TakeLastError(bool reset) {
  return reset ? std::exchange(last_error.error, cudaSuccess) : last_error.error;
}

}  // namespace emulated_cuda
