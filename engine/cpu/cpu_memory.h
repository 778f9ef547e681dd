#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "engine/cpu/parallel.h"
#include "engine/device.h"

namespace pando {

/// What the two CPU devices, at once and deferred, have in common: memory and kernels.
class CpuMemory : public Device {
 public:
  DeviceType type() const override { return DeviceType::kCpu; }
  std::string name() const override { return "cpu"; }
  const VectorKernels& vector_kernels() const override;
  void* AllocateFromSystem(int64_t bytes) override;
  void FreeToSystem(void* ptr, int64_t bytes) override;
  void* AllocateHost(int64_t bytes) override;
  void FreeHost(void* ptr, int64_t bytes) override;
  int64_t TotalMemory() const override;
};

/// memcpy on all threads where that pays.
inline void CopyBytes(void* dst, const void* src, int64_t bytes) {
  ParallelFor(bytes, int64_t{1} << 20, [=](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(dst) + begin, static_cast<const char*>(src) + begin,
                static_cast<size_t>(end - begin));
  });
}

}  // namespace pando
