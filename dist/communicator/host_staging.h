#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "dist/communicator/typed_span.h"
#include "engine/device.h"

namespace pando {

/// The way of spans of a device's memory through host memory and back, for collectives that run in
/// the latter. Copies run on streams of their own, beside the device's other work. Buffers are
/// pinned, and kept for reuse.
class HostStaging {
 public:
  /// One span's way.
  class Trip {
   public:
    Trip(HostStaging& staging, TypedSpan there);
    /// Waits until the device no longer touches the span.
    ~Trip();
    Trip(const Trip&) = delete;
    Trip& operator=(const Trip&) = delete;

    /// Where the span lies on the host.
    TypedSpan host() const { return {buffer_.data, there_.count(), there_.dtype()}; }
    /// Starts to copy a part of the span to the host, behind what the calling thread's current
    /// stream was given.
    void Down(TypedSpan part);
    /// Blocks until it is there.
    void AwaitDown() { down_->Synchronize(); }
    /// Starts to copy a part back. May be called by another thread than Down.
    void Up(TypedSpan part);
    /// Orders what the current stream is given from here on behind that.
    void OrderBehindUp();

   private:
    friend class HostStaging;
    struct Buffer {
      void* data = nullptr;
      int64_t bytes = 0;
    };
    void* OnHost(TypedSpan part) const;

    HostStaging& staging_;
    TypedSpan there_;
    Buffer buffer_;
    std::unique_ptr<Event> ready_, down_, up_;
  };

  explicit HostStaging(Device& device);
  ~HostStaging();
  HostStaging(const HostStaging&) = delete;
  HostStaging& operator=(const HostStaging&) = delete;

 private:
  Trip::Buffer Take(int64_t bytes);
  void GiveBack(Trip::Buffer buffer);

  Device& device_;
  std::unique_ptr<Stream> down_, up_;
  std::mutex mutex_;
  std::vector<Trip::Buffer> free_;  ///< guarded by it
};

}  // namespace pando
