#include "engine/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>

#include "engine/cuda/check.h"
#include "engine/cuda/vector_kernels_cuda.h"
#include "engine/error.h"

namespace pando {
namespace {

/// GPUs found; `error` is set if there are none because of it.
int CountDevices(cudaError_t* error) {
  int count = 0;
  *error = cudaGetDeviceCount(&count);
  switch (*error) {
    case cudaSuccess:
      return count;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
      (void)cudaGetLastError();  // so that nobody finds it later and takes it for their own
      return 0;
    default:
      ThrowCudaError(*error, "cudaGetDeviceCount");
  }
}

/// Makes GPU `index` the one that this thread's calls to CUDA are for.
void MakeCurrent(int index) {
  int current = -1;
  CheckCuda(cudaGetDevice(&current), "cudaGetDevice");
  if (current != index) CheckCuda(cudaSetDevice(index), "cudaSetDevice");
}

class CudaEvent : public Event {
 public:
  explicit CudaEvent(int index) {
    MakeCurrent(index);
    CheckCuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
              "cudaEventCreateWithFlags");
  }
  // Errors have no one to go to in destructors; at the program's end CUDA may be gone already.
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void Synchronize() override { CheckCuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  cudaEvent_t native() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

cudaEvent_t Native(Event& event) { return static_cast<CudaEvent&>(event).native(); }

cudaMemcpyKind NativeKind(CopyKind kind) {
  switch (kind) {
    case CopyKind::kHostToDevice:
      return cudaMemcpyHostToDevice;
    case CopyKind::kDeviceToHost:
      return cudaMemcpyDeviceToHost;
    case CopyKind::kDeviceToDevice:
      return cudaMemcpyDeviceToDevice;
  }
  return cudaMemcpyDefault;
}

class CudaStream : public Stream {
 public:
  CudaStream(Device& device, int index) : device_(device), index_(index) {
    MakeCurrent(index);
    // Non-blocking: the legacy default stream, which libraries may use, does not wait for it.
    CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              "cudaStreamCreateWithFlags");
  }
  ~CudaStream() override { (void)cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void Copy(void* dst, const void* src, int64_t bytes, CopyKind kind) override {
    if (bytes == 0) return;
    MakeCurrent(index_);
    CheckCuda(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), NativeKind(kind), stream_),
              "cudaMemcpyAsync");
  }
  void SetBytes(void* dst, int value, int64_t bytes) override {
    if (bytes == 0) return;
    MakeCurrent(index_);
    CheckCuda(cudaMemsetAsync(dst, value, static_cast<size_t>(bytes), stream_), "cudaMemsetAsync");
  }
  void Record(Event& event) override {
    CheckCuda(cudaEventRecord(Native(event), stream_), "cudaEventRecord");
  }
  void Wait(Event& event) override {
    CheckCuda(cudaStreamWaitEvent(stream_, Native(event), 0), "cudaStreamWaitEvent");
  }
  void Synchronize() override {
    CheckCuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  Device& device() override { return device_; }

 protected:
  void Submit(void (*run)(const void*, void*), const void* call, size_t /*size*/) override {
    MakeCurrent(index_);  // a kernel goes to a stream of the current device only
    run(call, stream_);
  }

 private:
  Device& device_;
  int index_;
  cudaStream_t stream_ = nullptr;
};

class Gpu : public Device {
 public:
  explicit Gpu(int index) : index_(index), total_memory_(DescribeCudaDevice(index).memory) {
    SetFirstStream(std::make_unique<CudaStream>(*this, index));
  }

  DeviceType type() const override { return DeviceType::kCuda; }
  std::string name() const override { return absl::StrCat("cuda:", index_); }

  std::unique_ptr<Stream> NewStream() override {
    return std::make_unique<CudaStream>(*this, index_);
  }
  std::unique_ptr<Event> NewEvent() override { return std::make_unique<CudaEvent>(index_); }
  const VectorKernels& vector_kernels() const override { return kCudaVectorKernels; }

  void Synchronize() override {
    MakeCurrent(index_);
    CheckCuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  void* AllocateFromSystem(int64_t bytes) override {
    MakeCurrent(index_);
    void* ptr = nullptr;
    const cudaError_t error = cudaMalloc(&ptr, static_cast<size_t>(bytes));
    return FoundMemory(error, "cudaMalloc") ? ptr : nullptr;
  }
  void FreeToSystem(void* ptr, int64_t /*bytes*/) override {
    MakeCurrent(index_);
    CheckCuda(cudaFree(ptr), "cudaFree");
  }
  void* AllocateHost(int64_t bytes) override {
    MakeCurrent(index_);  // else a context would be made on another GPU
    void* ptr = nullptr;
    const cudaError_t error =
        cudaHostAlloc(&ptr, static_cast<size_t>(bytes), cudaHostAllocPortable);
    return FoundMemory(error, "cudaHostAlloc") ? ptr : nullptr;
  }
  void FreeHost(void* ptr, int64_t /*bytes*/) override {
    MakeCurrent(index_);
    CheckCuda(cudaFreeHost(ptr), "cudaFreeHost");
  }
  int64_t TotalMemory() const override { return total_memory_; }

 private:
  /// False where there was no memory left.
  static bool FoundMemory(cudaError_t error, const char* what) {
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // dealt with: the next check must not find it
      return false;
    }
    CheckCuda(error, what);
    return true;
  }

  int index_;
  int64_t total_memory_;
};

void RequireIndex(int index) {
  const int count = CudaDeviceCount();
  Require(count > 0, "cuda:", index, ": ", WhyNoCuda());
  Require(index >= 0 && index < count, "cuda:", index, ": there ",
          count == 1 ? "is 1 GPU" : absl::StrCat("are ", count, " GPUs"), ", cuda:0",
          count == 1 ? "" : absl::StrCat(" to cuda:", count - 1));
}

}  // namespace

int CudaDeviceCount() {
  cudaError_t error;
  return CountDevices(&error);
}

std::string WhyNoCuda() {
  cudaError_t error;
  if (CountDevices(&error) > 0) return "";
  if (error == cudaErrorInsufficientDriver) {
    return "no NVIDIA driver, or one too old for the CUDA that this program was built with";
  }
  return "no NVIDIA GPU";
}

Device& CudaDevice(int index) {
  static std::mutex mu;
  static auto* gpus = new std::map<int, std::unique_ptr<Gpu>>;  // live as long as the process
  const std::lock_guard<std::mutex> lock(mu);
  const auto found = gpus->find(index);
  if (found != gpus->end()) return *found->second;
  RequireIndex(index);
  return *gpus->emplace(index, std::make_unique<Gpu>(index)).first->second;
}

CudaDescription DescribeCudaDevice(int index) {
  RequireIndex(index);
  cudaDeviceProp properties;
  CheckCuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return {properties.name, 10 * properties.major + properties.minor,
          static_cast<int64_t>(properties.totalGlobalMem), properties.multiProcessorCount};
}

}  // namespace pando
