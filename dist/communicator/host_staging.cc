#include "dist/communicator/host_staging.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/error.h"

namespace pando {

HostStaging::HostStaging(Device& device)
    : device_(device), down_(device.NewStream()), up_(device.NewStream()) {}

HostStaging::~HostStaging() {
  for (const Trip::Buffer& b : free_) device_.FreeHost(b.data, b.bytes);
}

HostStaging::Trip::Buffer HostStaging::Take(int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    // The smallest that is large enough.
    auto best = free_.end();
    for (auto b = free_.begin(); b != free_.end(); ++b) {
      if (b->bytes >= bytes && (best == free_.end() || b->bytes < best->bytes)) best = b;
    }
    if (best != free_.end()) {
      const Trip::Buffer buffer = *best;
      free_.erase(best);
      return buffer;
    }
  }
  void* data = device_.AllocateHost(bytes);
  if (data == nullptr) {
    throw OutOfMemory(absl::StrCat("no ", bytes, " bytes of pinned host memory for a collective"));
  }
  return {data, bytes};
}

void HostStaging::GiveBack(Trip::Buffer buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(buffer);
}

HostStaging::Trip::Trip(HostStaging& staging, TypedSpan there)
    : staging_(staging),
      there_(there),
      buffer_(staging.Take(std::max<int64_t>(there.bytes(), 1))),
      ready_(staging.device_.NewEvent()),
      down_(staging.device_.NewEvent()),
      up_(staging.device_.NewEvent()) {}

HostStaging::Trip::~Trip() {
  try {
    down_->Synchronize();
    up_->Synchronize();
  } catch (const DeviceError&) {
    // A device that has failed touches nothing any more, and says so to whoever asks it next.
  }
  staging_.GiveBack(buffer_);
}

void* HostStaging::Trip::OnHost(TypedSpan part) const {
  return static_cast<char*>(buffer_.data) +
         (static_cast<const char*>(part.data()) - static_cast<const char*>(there_.data()));
}

void HostStaging::Trip::Down(TypedSpan part) {
  staging_.device_.current_stream().Record(*ready_);
  staging_.down_->Wait(*ready_);
  if (part.count() > 0) {
    staging_.down_->Copy(OnHost(part), part.data(), part.bytes(), CopyKind::kDeviceToHost);
  }
  staging_.down_->Record(*down_);
}

void HostStaging::Trip::Up(TypedSpan part) {
  if (part.count() > 0) {
    staging_.up_->Copy(part.data(), OnHost(part), part.bytes(), CopyKind::kHostToDevice);
  }
  staging_.up_->Record(*up_);
}

void HostStaging::Trip::OrderBehindUp() { staging_.device_.current_stream().Wait(*up_); }

}  // namespace pando
