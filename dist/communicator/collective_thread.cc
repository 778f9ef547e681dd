#include "dist/communicator/collective_thread.h"

#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dist/launch/progress_page.h"
#include "engine/error.h"

namespace pando {

struct CollectiveThread::Task {
  CollectiveKind kind;
  int64_t bytes_sent;
  std::function<void()> run;
  bool done = false;
  bool failed = false;
};

class CollectiveThread::TaskWork : public Work {
 public:
  TaskWork(CollectiveThread& thread, std::shared_ptr<Task> task)
      : thread_(thread), task_(std::move(task)) {}
  ~TaskWork() override { WaitUntilDone(); }

  void Wait() override {
    WaitUntilDone();
    if (task_->failed) throw PeerLost(*thread_.failure());
  }

 private:
  void WaitUntilDone() {
    std::unique_lock lock(thread_.mutex_);
    thread_.changed_.wait(lock, [this] { return task_->done; });
  }

  CollectiveThread& thread_;
  std::shared_ptr<Task> task_;
};

CollectiveThread::CollectiveThread(std::function<void()> on_failure)
    : on_failure_(std::move(on_failure)), thread_([this] { Loop(); }) {}

CollectiveThread::~CollectiveThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::unique_ptr<Work> CollectiveThread::Submit(CollectiveKind kind, int64_t bytes_sent,
                                               std::function<void()> run) {
  auto task = std::make_shared<Task>(Task{kind, bytes_sent, std::move(run)});
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw PeerLost(*failure_);
    queue_.push_back(task);
  }
  ReportCollective();
  changed_.notify_all();
  return std::make_unique<TaskWork>(*this, std::move(task));
}

void CollectiveThread::Fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = reason;
  }
  on_failure_();
}

std::optional<std::string> CollectiveThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

CommunicatorStats CollectiveThread::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CollectiveThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Task> task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Run(*task);
    lock.lock();
    task->failed = failure_.has_value();
    task->done = true;
    changed_.notify_all();
  }
}

void CollectiveThread::Run(Task& task) {
  if (failure()) return;
  const auto start = std::chrono::steady_clock::now();
  try {
    task.run();
  } catch (const std::exception& e) {
    Fail(absl::StrCat(Name(task.kind), ": ", e.what()));
    return;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const std::lock_guard lock(mutex_);
  CommunicatorStats::Entry& entry = stats_.by_kind[static_cast<size_t>(task.kind)];
  ++entry.calls;
  entry.bytes_sent += task.bytes_sent;
  entry.seconds += took.count();
}

}  // namespace pando
