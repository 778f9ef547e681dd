#pragma once

// Arrays for kernels called directly, on whichever device is linked.

#include <cstdint>
#include <vector>

#include "engine/tensor.h"
#include "tests/test_device.h"

namespace pando {

/// Values on the test device, beginning `shift` elements behind an address that is aligned to 16
/// bytes or more.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values, int64_t shift = 0) : shift_(shift) {
    std::vector<T> padded(static_cast<size_t>(shift));
    padded.insert(padded.end(), values.begin(), values.end());
    const auto n = static_cast<int64_t>(padded.size());
    tensor_ = Tensor::FromHost(padded, {n}, TestDevice(), "test");
  }
  /// n zeros.
  explicit DeviceArray(int64_t n, int64_t shift = 0)
      : DeviceArray(std::vector<T>(static_cast<size_t>(n)), shift) {}

  T* data() { return tensor_.mutable_data<T>() + shift_; }
  /// What is there once everything queued has run.
  std::vector<T> Values() const {
    std::vector<T> values = tensor_.ToHost<T>();
    values.erase(values.begin(), values.begin() + shift_);
    return values;
  }

 private:
  int64_t shift_;
  Tensor tensor_;
};

/// Queues the kernel on the test device.
template <typename Args>
void LaunchOnTestDevice(Kernel<Args> kernel, const Args& args) {
  TestDevice().current_stream().Launch(kernel, args);
}

/// Uninitialised bytes on the test device for a kernel's scratch.
inline Tensor DeviceScratch(int64_t bytes) {
  return Tensor::Empty({(bytes + 3) / 4 + 1}, DType::kI32, TestDevice(), "scratch");
}

}  // namespace pando
