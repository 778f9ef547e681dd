#include "engine/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "engine/allocator.h"
#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/vector_kernels_cpu.h"

namespace pando {
namespace {

class ImmediateEvent : public Event {
 public:
  void Synchronize() override {}
};

class ImmediateStream : public Stream {
 public:
  explicit ImmediateStream(Device& device) : device_(device) {}
  void Copy(void* dst, const void* src, int64_t bytes, CopyKind /*kind*/) override {
    CopyBytes(dst, src, bytes);
  }
  void SetBytes(void* dst, int value, int64_t bytes) override {
    std::memset(dst, value, static_cast<size_t>(bytes));
  }
  void Record(Event& /*event*/) override {}
  void Wait(Event& /*event*/) override {}
  void Synchronize() override {}
  Device& device() override { return device_; }

 protected:
  void Submit(void (*run)(const void*, void*), const void* call, size_t /*size*/) override {
    run(call, nullptr);
  }

 private:
  Device& device_;
};

class ImmediateCpu : public CpuMemory {
 public:
  ImmediateCpu() { SetFirstStream(std::make_unique<ImmediateStream>(*this)); }
  std::unique_ptr<Stream> NewStream() override { return std::make_unique<ImmediateStream>(*this); }
  std::unique_ptr<Event> NewEvent() override { return std::make_unique<ImmediateEvent>(); }
  void Synchronize() override {}
};

}  // namespace

void* CpuMemory::AllocateFromSystem(int64_t bytes) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  void* p = nullptr;
  const int64_t alignment = bytes >= kHugePage ? kHugePage : 4096;
  if (posix_memalign(&p, static_cast<size_t>(alignment), static_cast<size_t>(bytes)) != 0) {
    return nullptr;
  }
  // Large pages save a tenth of a step; that the kernel may refuse them is no failure.
  if (bytes >= kHugePage) (void)madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return p;
}

void CpuMemory::FreeToSystem(void* ptr, int64_t /*bytes*/) { std::free(ptr); }
void* CpuMemory::AllocateHost(int64_t bytes) { return AllocateFromSystem(bytes); }
void CpuMemory::FreeHost(void* ptr, int64_t bytes) { FreeToSystem(ptr, bytes); }

int64_t CpuMemory::TotalMemory() const {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
}

const VectorKernels& CpuMemory::vector_kernels() const { return CpuVectorKernels(); }

Device& CpuDevice() {
  static ImmediateCpu* device = new ImmediateCpu;  // lives as long as the process
  return *device;
}

}  // namespace pando
