#include "engine/device.h"

#include <unordered_map>
#include <utility>

#include "engine/allocator.h"
#include "engine/error.h"
#include "engine/storage.h"

namespace pando {
namespace {
// Streams chosen by StreamGuards of this thread, by device.
std::unordered_map<const Device*, Stream*>& Chosen() {
  thread_local std::unordered_map<const Device*, Stream*> chosen;
  return chosen;
}
}  // namespace

Device::Device() : allocator_(std::make_unique<Allocator>(*this)) {}
Device::~Device() = default;

Stream& Device::current_stream() {
  const auto& chosen = Chosen();
  const auto it = chosen.find(this);
  return it == chosen.end() ? *first_stream_ : *it->second;
}

int32_t* Device::error_flag() {
  if (error_flag_ == nullptr) {
    error_flag_ = std::make_unique<Storage>(*this, sizeof(int32_t), "error flag");
    current_stream().SetBytes(error_flag_->data(), 0, sizeof(int32_t));
  }
  return reinterpret_cast<int32_t*>(error_flag_->data());
}

void Device::CheckErrorFlag() {
  int32_t flag = 0;
  current_stream().Copy(&flag, error_flag(), sizeof(flag), CopyKind::kDeviceToHost);
  current_stream().Synchronize();
  if (flag == 0) return;
  current_stream().SetBytes(error_flag(), 0, sizeof(flag));
  throw InvalidArgument(
      "a token or target id lies outside the vocabulary: was the data made with another "
      "tokenizer?");
}

void Device::Shutdown() {
  error_flag_ = nullptr;
  allocator_->ReleaseCached();
  first_stream_ = nullptr;
}

StreamGuard::StreamGuard(Stream& stream) : previous_(nullptr), device_(stream.device()) {
  Stream*& chosen = Chosen()[&device_];
  previous_ = std::exchange(chosen, &stream);
}

StreamGuard::~StreamGuard() {
  if (previous_ == nullptr) {
    Chosen().erase(&device_);
  } else {
    Chosen()[&device_] = previous_;
  }
}

}  // namespace pando
