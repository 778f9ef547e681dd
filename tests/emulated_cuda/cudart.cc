// The functions of cuda_runtime_api.h.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/emulated_cuda/machine.h"

using emulated_cuda::Error;
using emulated_cuda::Machine;
using emulated_cuda::TheMachine;

namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

cudaError_t BadDevice(int device) {
  if (TheMachine().config.devices == 0) return Error(cudaErrorNoDevice, "no device");
  if (device >= 0 && device < TheMachine().config.devices) return cudaSuccess;
  return Error(cudaErrorInvalidDevice, "no device of this number");
}

/// Most shared memory per block (CUDA C++ Programming Guide, "Technical specifications per compute
/// capability").
int SharedOptin(int capability) {
  switch (capability) {
    case 75:
      return 64 << 10;
    case 80:
    case 87:
      return 163 << 10;
    case 90:
    case 100:
    case 103:
      return 227 << 10;
    default:  // 8.6, 8.9, 12.x
      return 99 << 10;
  }
}

cudaError_t CheckCopy(const void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  const Machine& m = TheMachine();
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (bytes == 0) return cudaSuccess;
  if (dst == nullptr || src == nullptr)
    return Error(cudaErrorInvalidValue, "copy of a null pointer");
  if (kind != cudaMemcpyDefault &&
      (m.InDeviceRange(dst) != to_device || m.InDeviceRange(src) != from_device)) {
    return Error(cudaErrorInvalidValue, "copy: a pointer is not on the side that its kind says");
  }
  return cudaSuccess;
}

/// Whether the bytes lie in host memory or in one live allocation; else fails the work.
bool InBounds(const void* pointer, size_t bytes, const char* what) {
  const Machine& m = TheMachine();
  if (!m.InDeviceRange(pointer) || m.Holder(pointer, bytes) != nullptr) return true;
  char where[256];
  for (const auto& memory : m.memories) {
    if (memory->InRange(pointer)) memory->Describe(pointer, where, sizeof(where));
  }
  emulated_cuda::Fail(std::string(what) + " " + std::to_string(bytes) + " bytes, beginning " +
                      where);
  return false;
}

void CopyNow(void* dst, const void* src, size_t bytes) {
  if (InBounds(dst, bytes, "copy to") && InBounds(src, bytes, "copy from")) {
    std::memmove(dst, src, bytes);
  }
}

}  // namespace

cudaError_t cudaGetLastError() { return emulated_cuda::TakeLastError(true); }
cudaError_t cudaPeekAtLastError() { return emulated_cuda::TakeLastError(false); }

#define EMULATED_CUDA_NAME(error) \
  case error:                     \
    return #error

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    EMULATED_CUDA_NAME(cudaSuccess);
    EMULATED_CUDA_NAME(cudaErrorInvalidValue);
    EMULATED_CUDA_NAME(cudaErrorMemoryAllocation);
    EMULATED_CUDA_NAME(cudaErrorInvalidConfiguration);
    EMULATED_CUDA_NAME(cudaErrorStubLibrary);
    EMULATED_CUDA_NAME(cudaErrorInsufficientDriver);
    EMULATED_CUDA_NAME(cudaErrorNoDevice);
    EMULATED_CUDA_NAME(cudaErrorInvalidDevice);
    EMULATED_CUDA_NAME(cudaErrorInvalidResourceHandle);
    EMULATED_CUDA_NAME(cudaErrorNotReady);
    EMULATED_CUDA_NAME(cudaErrorIllegalAddress);
    EMULATED_CUDA_NAME(cudaErrorLaunchFailure);
    EMULATED_CUDA_NAME(cudaErrorNotSupported);
    EMULATED_CUDA_NAME(cudaErrorUnknown);
  }
  return "no such error";
}

const char* cudaGetErrorString(cudaError_t error) {
  const char* text = emulated_cuda::ErrorText(error);
  return text == nullptr ? cudaGetErrorName(error) : text;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = TheMachine().config.devices == 0 ? 0 : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = TheMachine().config.devices;
  return *count == 0 ? BadDevice(0) : cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t bad = BadDevice(device)) return bad;
  Machine::device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = Machine::device;
  return BadDevice(*device);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t bad = BadDevice(device)) return bad;
  const emulated_cuda::Config& config = TheMachine().config;
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "Emulated GPU");
  properties->totalGlobalMem = static_cast<size_t>(config.memory);
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = static_cast<size_t>(SharedOptin(config.compute_capability));
  properties->sharedMemPerMultiprocessor = properties->sharedMemPerBlockOptin + (1 << 10);
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->major = config.compute_capability / 10;
  properties->minor = config.compute_capability % 10;
  properties->multiProcessorCount = 4;
  properties->l2CacheSize = 1 << 20;
  properties->memoryBusWidth = 1024;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t bad = cudaGetDeviceProperties(&p, device)) return bad;
  const auto set = [value](auto x) {
    *value = static_cast<int>(x);
    return cudaSuccess;
  };
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return set(p.sharedMemPerBlock);
    case cudaDevAttrWarpSize:
      return set(p.warpSize);
    case cudaDevAttrMultiProcessorCount:
      return set(p.multiProcessorCount);
    case cudaDevAttrL2CacheSize:
      return set(p.l2CacheSize);
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return set(p.maxThreadsPerMultiProcessor);
    case cudaDevAttrComputeCapabilityMajor:
      return set(p.major);
    case cudaDevAttrComputeCapabilityMinor:
      return set(p.minor);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return set(p.sharedMemPerMultiprocessor);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return set(p.sharedMemPerBlockOptin);
  }
  return Error(cudaErrorInvalidValue, "unknown attribute");
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t bad = BadDevice(Machine::device)) return bad;
  return TheMachine().RunAll();
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  if (const cudaError_t bad = BadDevice(Machine::device)) return bad;
  *total_bytes = static_cast<size_t>(m.config.memory);
  *free_bytes = *total_bytes - std::min(*total_bytes, m.memory().live_bytes());
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  size_t free_bytes = 0, total_bytes = 0;
  if (const cudaError_t bad = cudaMemGetInfo(&free_bytes, &total_bytes)) return bad;
  if (bytes > free_bytes) return Error(cudaErrorMemoryAllocation, "out of memory");
  ++m.counters.device_allocations;
  *pointer = bytes == 0 ? nullptr : m.memory().Allocate(bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  if (pointer == nullptr) return cudaSuccess;
  std::string damage;
  for (const auto& memory : m.memories) {
    if (!memory->Free(pointer, &damage)) continue;
    if (!damage.empty()) emulated_cuda::Fail(damage);
    return cudaSuccess;
  }
  return Error(cudaErrorInvalidValue, "cudaFree of what is no allocation");
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned /*flags*/) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  ++m.counters.host_allocations;
  *pointer = m.pinned.Allocate(bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}
cudaError_t cudaFreeHost(void* pointer) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  std::string damage;
  if (pointer == nullptr) return cudaSuccess;
  if (!m.pinned.Free(pointer, &damage)) {
    return Error(cudaErrorInvalidValue, "cudaFreeHost of what is no allocation");
  }
  if (!damage.empty()) emulated_cuda::Fail(damage);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  if (const cudaError_t bad = BadDevice(Machine::device)) return bad;
  if (flags != cudaStreamNonBlocking) {
    return Error(cudaErrorNotSupported, "only non-blocking streams are emulated");
  }
  ++m.counters.streams;
  *stream = new CUstream_st{.queue = {}, .device = Machine::device};
  m.scheduler.Add(&(*stream)->queue);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  const cudaError_t error = m.Run([stream] { return stream->queue.empty(); });
  m.scheduler.Remove(&stream->queue);
  delete stream;
  return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream == nullptr) return TheMachine().RunAll();
  return TheMachine().Run([stream] { return stream->queue.empty(); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  const auto state = event->state;
  const int64_t want = state->recorded;
  if (want == 0 || m.scheduler.DropsNextWait()) return cudaSuccess;
  m.scheduler.PushWhen(
      stream->queue, [state, want] { return state->done >= want; }, [] {});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  const Lock lock(TheMachine().mu);
  ++TheMachine().counters.events;
  *event = new CUevent_st{.device = Machine::device};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(TheMachine().mu);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(TheMachine().mu);
  if (stream != nullptr && stream->device != event->device) {
    return Error(cudaErrorInvalidResourceHandle, "record on a stream of another device");
  }
  auto state = event->state;
  const int64_t number = ++state->recorded;
  return emulated_cuda::Queue(stream, "event", [state, number] {
    state->done = number;
    state->time = std::chrono::steady_clock::now();
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto state = event->state;
  const int64_t want = state->recorded;
  return TheMachine().Run([state, want] { return state->done >= want; });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  const auto state = event->state;
  if (state->done >= state->recorded) return cudaSuccess;
  // Who asks again and again must at last hear yes: each asking lets one piece of work run.
  int64_t asked = 0;
  const cudaError_t error = m.WhileOpen([&] { m.scheduler.RunUntil([&] { return asked++ > 0; }); });
  return error != cudaSuccess ? error : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock(TheMachine().mu);
  for (const cudaEvent_t e : {begin, end}) {
    if (e->state->recorded == 0) return Error(cudaErrorInvalidResourceHandle, "event not recorded");
    if (e->state->done < e->state->recorded) return cudaErrorNotReady;
  }
  const std::chrono::duration<float, std::milli> time = end->state->time - begin->state->time;
  *milliseconds = time.count();
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  if (const cudaError_t bad = CheckCopy(dst, src, bytes, kind)) return bad;
  // Of the default stream: it waits for no non-blocking stream.
  return m.WhileOpen([&] { CopyNow(dst, src, bytes); });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Lock lock(TheMachine().mu);
  if (const cudaError_t bad = CheckCopy(dst, src, bytes, kind)) return bad;
  return emulated_cuda::Queue(stream, "copy", [=] { CopyNow(dst, src, bytes); });
}

cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock(TheMachine().mu);
  if (bytes > 0 && !TheMachine().InDeviceRange(dst)) {
    return Error(cudaErrorInvalidValue, "cudaMemsetAsync of host memory");
  }
  return emulated_cuda::Queue(stream, "memset", [=] {
    if (InBounds(dst, bytes, "setting of")) std::memset(dst, value, bytes);
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  Machine& m = TheMachine();
  const Lock lock(m.mu);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value > SharedOptin(m.config.compute_capability)) {
    return Error(cudaErrorInvalidValue, "more shared memory than a block of this device can have");
  }
  m.shared_limits[kernel] = value;
  return cudaSuccess;
}
