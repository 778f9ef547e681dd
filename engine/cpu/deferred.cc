// The CPU with deferred streams: see cpu_device.h.
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/allocator.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cpu/cpu_memory.h"
#include "engine/cpu/deferred_scheduler.h"
#include "engine/error.h"

namespace pando {
namespace {

class DeferredEvent : public Event {
 public:
  explicit DeferredEvent(DeferredScheduler& scheduler) : scheduler_(scheduler) {}
  void Synchronize() override {
    const int64_t want = state_->recorded;
    scheduler_.RunUntil([this, want] { return state_->done >= want; });
  }
  const std::shared_ptr<DeferredEventState>& state() const { return state_; }

 private:
  DeferredScheduler& scheduler_;
  std::shared_ptr<DeferredEventState> state_ = std::make_shared<DeferredEventState>();
};

class DeferredStream : public Stream {
 public:
  DeferredStream(Device& device, DeferredScheduler& scheduler)
      : device_(device), scheduler_(scheduler) {
    scheduler_.Add(&queue_);
  }
  ~DeferredStream() override {
    try {
      scheduler_.Remove(&queue_);
    } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch): what waits for ever never runs
    }
  }

  void Copy(void* dst, const void* src, int64_t bytes, CopyKind /*kind*/) override {
    Push([=] { CopyBytes(dst, src, bytes); });
  }
  void SetBytes(void* dst, int value, int64_t bytes) override {
    Push([=] { std::memset(dst, value, static_cast<size_t>(bytes)); });
  }
  void Record(Event& event) override {
    auto state = static_cast<DeferredEvent&>(event).state();
    const int64_t number = ++state->recorded;
    Push([state, number] { state->done = number; });
  }
  void Wait(Event& event) override {
    auto state = static_cast<DeferredEvent&>(event).state();
    const int64_t want = state->recorded;
    if (want == 0 || scheduler_.DropsNextWait()) return;
    scheduler_.PushWhen(
        queue_, [state, want] { return state->done >= want; }, [] {});
  }
  void Synchronize() override {
    scheduler_.RunUntil([this] { return queue_.empty(); });
  }
  Device& device() override { return device_; }

 protected:
  void Submit(void (*run)(const void*, void*), const void* call, size_t size) override {
    // Units of max_align_t, so that the copy is aligned as the original was.
    auto copy = std::make_shared<std::vector<std::max_align_t>>(
        (size + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
    std::memcpy(copy->data(), call, size);
    Push([run, copy] { run(copy->data(), nullptr); });
  }

 private:
  void Push(std::function<void()> run) { scheduler_.Push(queue_, std::move(run)); }

  Device& device_;
  DeferredScheduler& scheduler_;
  DeferredQueue queue_;
};

class DeferredCpu : public CpuMemory {
 public:
  DeferredCpu(uint64_t seed, int64_t dropped_wait) : scheduler_(seed, dropped_wait) {
    SetFirstStream(std::make_unique<DeferredStream>(*this, scheduler_));
    allocator().SetPoison(true);
  }
  ~DeferredCpu() override { Shutdown(); }
  std::unique_ptr<Stream> NewStream() override {
    return std::make_unique<DeferredStream>(*this, scheduler_);
  }
  std::unique_ptr<Event> NewEvent() override { return std::make_unique<DeferredEvent>(scheduler_); }
  void Synchronize() override {
    scheduler_.RunUntil([this] { return scheduler_.AllEmpty(); });
  }

 private:
  DeferredScheduler scheduler_;
};

}  // namespace

std::unique_ptr<Device> NewDeferredCpuDevice(uint64_t seed, int64_t dropped_wait) {
  return std::make_unique<DeferredCpu>(seed, dropped_wait);
}

}  // namespace pando
