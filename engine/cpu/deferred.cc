// The CPU with deferred streams: see cpu_device.h.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "engine/allocator.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cpu/cpu_memory.h"
#include "engine/error.h"
#include "engine/random.h"

namespace pando {
namespace {

/// How often an event was recorded (submitted) and how often that record has run. Shared with the
/// queues, so that a destroyed Event does no harm to work that still refers to it.
struct EventState {
  int64_t recorded = 0;
  int64_t done = 0;
};

/// One piece of queued work: `ready` says whether it may run yet.
struct Task {
  std::function<bool()> ready;
  std::function<void()> run;
};

using Queue = std::deque<Task>;

/// All queues of a device, and the die that picks the next one to advance.
class Scheduler {
 public:
  Scheduler(uint64_t seed, int64_t dropped_wait)
      : key_{.seed = seed, .site = HashName("deferred"), .step = 0}, dropped_wait_(dropped_wait) {}

  void Add(Queue* queue) {
    const std::lock_guard<std::recursive_mutex> lock(mu_);
    queues_.push_back(queue);
  }
  void Remove(Queue* queue) {
    const std::lock_guard<std::recursive_mutex> lock(mu_);
    const absl::Cleanup forget = [this, queue] { std::erase(queues_, queue); };
    RunUntil([queue] { return queue->empty(); });
  }
  void Push(Queue& queue, Task task) {
    const std::lock_guard<std::recursive_mutex> lock(mu_);
    queue.push_back(std::move(task));
  }

  /// Runs tasks, each from a queue drawn at random among those that can go on, until `done`.
  void RunUntil(const std::function<bool()>& done) {
    const std::lock_guard<std::recursive_mutex> lock(mu_);
    run_left_ = 0;
    while (!done()) {
      std::vector<Queue*> ready;
      for (Queue* q : queues_) {
        if (!q->empty() && q->front().ready()) ready.push_back(q);
      }
      if (ready.empty()) throw DeviceError("deferred streams wait for each other for ever");
      Queue& queue = Draw(ready);
      const Task task = std::move(queue.front());
      queue.pop_front();
      task.run();
    }
  }

  /// Whether the next wait is the one to leave out.
  bool DropsNextWait() {
    const std::lock_guard<std::recursive_mutex> lock(mu_);
    return waits_++ == dropped_wait_;
  }

  bool AllEmpty() const {
    for (const Queue* q : queues_) {
      if (!q->empty()) return false;
    }
    return true;
  }

 private:
  /// The queue to advance next. Queues have runs of very different lengths, so that one may get far
  /// ahead of another: drawn for each task anew, none ever would.
  Queue& Draw(const std::vector<Queue*>& ready) {
    if (run_left_ == 0 || std::find(ready.begin(), ready.end(), running_) == ready.end()) {
      running_ = ready[RandomBits(key_, 0, draws_++) % ready.size()];
      run_left_ = int64_t{1} << (RandomBits(key_, 0, draws_++) % 12);
    }
    --run_left_;
    return *running_;
  }

  std::recursive_mutex mu_;
  RandomKey key_;
  uint64_t draws_ = 0;
  Queue* running_ = nullptr;  // only compared: it may be gone
  int64_t run_left_ = 0;
  int64_t waits_ = 0;
  int64_t dropped_wait_;
  std::vector<Queue*> queues_;
};

class DeferredEvent : public Event {
 public:
  explicit DeferredEvent(Scheduler& scheduler) : scheduler_(scheduler) {}
  void Synchronize() override {
    const int64_t want = state_->recorded;
    scheduler_.RunUntil([this, want] { return state_->done >= want; });
  }
  const std::shared_ptr<EventState>& state() const { return state_; }

 private:
  Scheduler& scheduler_;
  std::shared_ptr<EventState> state_ = std::make_shared<EventState>();
};

class DeferredStream : public Stream {
 public:
  DeferredStream(Device& device, Scheduler& scheduler) : device_(device), scheduler_(scheduler) {
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
    scheduler_.Push(queue_, {[state, want] { return state->done >= want; }, [] {}});
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
  void Push(std::function<void()> run) {
    scheduler_.Push(queue_, {[] { return true; }, std::move(run)});
  }

  Device& device_;
  Scheduler& scheduler_;
  Queue queue_;
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
  Scheduler scheduler_;
};

}  // namespace

std::unique_ptr<Device> NewDeferredCpuDevice(uint64_t seed, int64_t dropped_wait) {
  return std::make_unique<DeferredCpu>(seed, dropped_wait);
}

}  // namespace pando
