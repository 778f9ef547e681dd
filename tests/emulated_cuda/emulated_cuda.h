#pragma once

// The emulated GPUs, as tests set them up and as stand-ins for CUDA's libraries use them.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

namespace emulated_cuda {

/// What the emulated machine is like.
struct Config {
  /// Another seed, another order of streams, blocks, warps and lanes.
  uint64_t seed = 1;
  int devices = 1;
  /// Major * 10 + minor.
  int compute_capability = 90;
  /// Bytes of memory of each device.
  int64_t memory = int64_t{1} << 30;
  /// Counted from 0, the cudaStreamWaitEvent of a recorded event that is left out; -1: none.
  int64_t dropped_wait = -1;
};

/// Runs what is queued, then takes over `config`. Orders and counts of waits begin anew, and what
/// failed is forgotten.
void Configure(const Config& config);
const Config& CurrentConfig();

/// What was done since the start of the process.
struct Counters {
  int64_t device_allocations = 0;
  int64_t host_allocations = 0;
  int64_t launches = 0;
  int64_t streams = 0;
  int64_t events = 0;
  int64_t barriers = 0;         ///< passed by a warp or a block, warp functions among them
  int64_t library_objects = 0;  ///< descriptors and handles of libraries
};
Counters GetCounters();

// For stand-ins of libraries.

/// Queues host code `run` as the device's work `name`: while it runs, device memory is open to it.
cudaError_t Queue(cudaStream_t stream, std::string name, std::function<void()> run);
/// Within device work: the work is wrong. Every synchronisation from then on returns
/// cudaErrorLaunchFailure, described by the first such `message`.
void Fail(const std::string& message);
/// Whether all of these bytes lie in one live allocation of a device.
bool IsDeviceMemory(const void* pointer, size_t bytes);
/// Counts in Counters::library_objects.
void CountLibraryObject();

}  // namespace emulated_cuda
