#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/device.h"
#include "engine/tensor.h"

namespace pando {

/// Consecutive samples of the run, on the host.
struct HostBatch {
  int64_t first_sample = 0;  ///< global index of the first one
  int64_t samples = 0;
  int64_t length = 0;                ///< tokens of each
  std::span<const int32_t> tokens;   ///< [samples, length]
  std::span<const int32_t> targets;  ///< [samples, length], -1 for none
};

/// A micro-batch on the device: i32 [B, T], i32 [B, T], i64 [B].
struct DeviceBatch {
  Tensor tokens;
  Tensor targets;
  Tensor sample_ids;
};

/// Brings micro-batches to the device on a stream of its own, the next while one is computed with:
/// two slots, each guarded by two events (filled; no longer read).
class BatchUploader {
 public:
  /// For micro-batches of up to `samples` x `length` tokens.
  BatchUploader(Device& device, int64_t samples, int64_t length);
  ~BatchUploader();
  BatchUploader(const BatchUploader&) = delete;
  BatchUploader& operator=(const BatchUploader&) = delete;

  /// Starts to copy rows [first, first + count) of `batch` into the free slot. The batch may be
  /// changed as soon as this returns. Throws InvalidArgument if both slots are in use.
  void Start(const HostBatch& batch, int64_t first, int64_t count);
  /// The micro-batch started earliest; work that the current stream is given from here on finds it
  /// filled.
  DeviceBatch Take();
  /// The current stream has been given all work that reads the batch taken last.
  void Done();
  /// Gives up all micro-batches started and not done: after a failed step.
  void Abandon();

 private:
  struct Slot;
  static constexpr int kSlots = 2;

  Device& device_;
  int64_t samples_;
  int64_t length_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Slot> slots_[kSlots];
  int64_t started_ = 0;
  int64_t taken_ = 0;
  int64_t done_ = 0;
};

}  // namespace pando
