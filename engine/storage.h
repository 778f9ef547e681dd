#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/allocator.h"
#include "engine/device.h"

namespace pando {

/// Bytes on a device, shared by the tensors that look at them. The bytes may be released and
/// restored (ZeRO-3 frees a unit's parameters between its uses), while the tensors stay.
class Storage {
 public:
  /// Allocates on the device's current stream. `name` appears in errors and statistics, `what` (a
  /// shape) in errors. Throws OutOfMemory.
  Storage(Device& device, int64_t bytes, std::string name, std::string what = "");
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device& device() const { return device_; }
  int64_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  /// First byte. Throws InvalidArgument, naming the storage, while the bytes are released.
  char* data() const;

  /// Gives the bytes back to the allocator; their values are gone.
  void Release();
  /// Has bytes again, of undefined value. Throws OutOfMemory.
  void Restore();
  bool released() const { return block_ == nullptr; }

  /// Says that work on `stream`, not the stream that allocated the bytes, uses them.
  void RecordUse(Stream& stream);

  /// Counts the writes, so that a saved tensor can tell that its bytes have changed.
  int64_t version() const { return version_; }
  void BumpVersion() { ++version_; }

 private:
  Device& device_;
  int64_t bytes_;
  std::string name_;
  std::string what_;
  Allocator::Block* block_ = nullptr;
  int64_t version_ = 0;
};

}  // namespace pando
