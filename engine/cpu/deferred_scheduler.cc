#include "engine/cpu/deferred_scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "engine/error.h"

namespace pando {

DeferredScheduler::DeferredScheduler(uint64_t seed, int64_t dropped_wait) {
  Reset(seed, dropped_wait);
}

void DeferredScheduler::Reset(uint64_t seed, int64_t dropped_wait) {
  const std::lock_guard<std::recursive_mutex> lock(mu_);
  key_ = {.seed = seed, .site = HashName("deferred"), .step = 0};
  draws_ = 0;
  run_left_ = 0;
  waits_ = 0;
  dropped_wait_ = dropped_wait;
}

void DeferredScheduler::Add(DeferredQueue* queue) {
  const std::lock_guard<std::recursive_mutex> lock(mu_);
  queues_.push_back(queue);
}

void DeferredScheduler::Remove(DeferredQueue* queue) {
  const std::lock_guard<std::recursive_mutex> lock(mu_);
  const absl::Cleanup forget = [this, queue] { std::erase(queues_, queue); };
  RunUntil([queue] { return queue->empty(); });
}

void DeferredScheduler::Push(DeferredQueue& queue, std::function<void()> run) {
  PushWhen(
      queue, [] { return true; }, std::move(run));
}

void DeferredScheduler::PushWhen(DeferredQueue& queue, std::function<bool()> ready,
                                 std::function<void()> run) {
  const std::lock_guard<std::recursive_mutex> lock(mu_);
  queue.push_back({std::move(ready), std::move(run)});
}

void DeferredScheduler::RunUntil(const std::function<bool()>& done) {
  const std::lock_guard<std::recursive_mutex> lock(mu_);
  run_left_ = 0;
  while (!done()) {
    std::vector<DeferredQueue*> ready;
    for (DeferredQueue* q : queues_) {
      if (!q->empty() && q->front().ready()) ready.push_back(q);
    }
    if (ready.empty()) throw DeviceError("deferred streams wait for each other for ever");
    DeferredQueue& queue = Draw(ready);
    const DeferredTask task = std::move(queue.front());
    queue.pop_front();
    task.run();
  }
}

bool DeferredScheduler::DropsNextWait() {
  const std::lock_guard<std::recursive_mutex> lock(mu_);
  return waits_++ == dropped_wait_;
}

bool DeferredScheduler::AllEmpty() const {
  const std::lock_guard<std::recursive_mutex> lock(mu_);
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const DeferredQueue* q) { return q->empty(); });
}

/// The queue to advance next. Queues have runs of very different lengths, so that one may get far
/// ahead of another: drawn for each task anew, none ever would.
DeferredQueue& DeferredScheduler::Draw(const std::vector<DeferredQueue*>& ready) {
  if (run_left_ == 0 || std::find(ready.begin(), ready.end(), running_) == ready.end()) {
    running_ = ready[RandomBits(key_, 0, draws_++) % ready.size()];
    run_left_ = int64_t{1} << (RandomBits(key_, 0, draws_++) % 12);
  }
  --run_left_;
  return *running_;
}

}  // namespace pando
