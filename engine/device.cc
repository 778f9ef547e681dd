#include "engine/device.h"

#include <unordered_map>
#include <utility>

#include "engine/allocator.h"

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
