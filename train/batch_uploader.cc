#include "train/batch_uploader.h"

#include <algorithm>

#include "engine/error.h"

namespace pando {

struct BatchUploader::Slot {
  explicit Slot(Device& d, int64_t samples, int64_t length)
      : device(d),
        host_bytes(samples * (2 * length * SizeOf(DType::kI32) + SizeOf(DType::kI64))),
        host(static_cast<char*>(d.AllocateHost(host_bytes))),
        tokens(Tensor::Empty({samples, length}, DType::kI32, d, "tokens")),
        targets(Tensor::Empty({samples, length}, DType::kI32, d, "targets")),
        sample_ids(Tensor::Empty({samples}, DType::kI64, d, "sample ids")),
        filled(d.NewEvent()),
        free(d.NewEvent()) {
    if (host == nullptr) throw OutOfMemory("no host memory for batches");
  }
  ~Slot() { device.FreeHost(host, host_bytes); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  Device& device;
  int64_t host_bytes;
  char* host;  // what is being copied from
  Tensor tokens, targets, sample_ids;
  std::unique_ptr<Event> filled;  // recorded by the copying stream
  std::unique_ptr<Event> free;    // recorded by the computing stream
  int64_t count = 0;
  int64_t length = 0;
};

BatchUploader::BatchUploader(Device& device, int64_t samples, int64_t length)
    : device_(device), samples_(samples), length_(length), stream_(device.NewStream()) {
  for (auto& slot : slots_) slot = std::make_unique<Slot>(device, samples, length);
  // The slots' memory belongs to the current stream, whose earlier work may still use it.
  const auto ready = device.NewEvent();
  device.current_stream().Record(*ready);
  stream_->Wait(*ready);
}

BatchUploader::~BatchUploader() { stream_->Synchronize(); }

void BatchUploader::Start(const HostBatch& batch, int64_t first, int64_t count) {
  Require(started_ - done_ < kSlots, "batch upload: both slots are in use");
  Require(count <= samples_ && batch.length <= length_ && first + count <= batch.samples,
          "batch upload: ", first, " + ", count, " samples of ", batch.length,
          " tokens, slots for ", samples_, " x ", length_, ", batch of ", batch.samples);
  Slot& slot = *slots_[started_++ % kSlots];
  slot.count = count;
  slot.length = batch.length;
  slot.filled->Synchronize();  // the host side may still be copied from
  const int64_t begin = first * batch.length;
  const int64_t n = count * batch.length;
  auto* tokens = reinterpret_cast<int32_t*>(slot.host);
  auto* targets = tokens + n;
  // Behind 2 n 32-bit numbers: aligned for 64.
  auto* ids = reinterpret_cast<int64_t*>(targets + n);
  std::copy_n(batch.tokens.begin() + begin, n, tokens);
  std::copy_n(batch.targets.begin() + begin, n, targets);
  for (int64_t i = 0; i < count; ++i) ids[i] = batch.first_sample + first + i;
  stream_->Wait(*slot.free);
  const auto copy = [this](Tensor& to, const void* from, int64_t bytes) {
    stream_->Copy(to.mutable_data(), from, bytes, CopyKind::kHostToDevice);
  };
  copy(slot.tokens, tokens, n * SizeOf(DType::kI32));
  copy(slot.targets, targets, n * SizeOf(DType::kI32));
  copy(slot.sample_ids, ids, count * SizeOf(DType::kI64));
  stream_->Record(*slot.filled);
}

DeviceBatch BatchUploader::Take() {
  Require(taken_ < started_, "batch upload: nothing was started");
  Slot& slot = *slots_[taken_++ % kSlots];
  device_.current_stream().Wait(*slot.filled);
  const Shape shape{slot.count, slot.length};
  return {Tensor::View(slot.tokens.storage(), 0, shape, DType::kI32),
          Tensor::View(slot.targets.storage(), 0, shape, DType::kI32),
          slot.sample_ids.Narrow(0, slot.count)};
}

void BatchUploader::Done() {
  Require(done_ < taken_, "batch upload: no batch is taken");
  device_.current_stream().Record(*slots_[done_++ % kSlots]->free);
}

void BatchUploader::Abandon() {
  while (taken_ < started_) Take();
  while (done_ < taken_) Done();
}

}  // namespace pando
