#include "engine/storage.h"

#include <utility>

#include "engine/error.h"

namespace pando {

Storage::Storage(Device& device, int64_t bytes, std::string name, std::string what)
    : device_(device), bytes_(bytes), name_(std::move(name)), what_(std::move(what)) {
  Restore();
}

Storage::~Storage() {
  if (block_ != nullptr) device_.allocator().Free(block_);
}

char* Storage::data() const {
  Require(block_ != nullptr, "the bytes of ", name_, " are released: gather them before use");
  return static_cast<char*>(Allocator::Data(block_));
}

void Storage::Release() {
  Require(block_ != nullptr, "the bytes of ", name_, " are released already");
  device_.allocator().Free(std::exchange(block_, nullptr));
}

void Storage::Restore() {
  Require(block_ == nullptr, "the bytes of ", name_, " are there already");
  block_ = device_.allocator().Allocate(bytes_, device_.current_stream(), name_, what_);
}

void Storage::RecordUse(Stream& stream) {
  Require(block_ != nullptr, "the bytes of ", name_, " are released: gather them before use");
  device_.allocator().RecordUse(block_, stream);
}

}  // namespace pando
