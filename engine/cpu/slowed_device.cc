#include "engine/cpu/slowed_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>

#include "engine/cpu/cpu_memory.h"
#include "engine/error.h"
#include "engine/random.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

// Shorter sleeps are too inexact; what is due is slept behind a later kernel.
constexpr double kShortestSleep = 1e-3;

double ThreadSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// What kernels owe: the time that they should have taken, less what has gone by in them.
class Stretcher {
 public:
  Stretcher(const SlowedOptions& options, SlowedStats* stats)
      : options_(options), stats_(stats == nullptr ? &own_ : stats) {}

  template <typename F>
  void Run(const F& kernel) {
    const auto start = Clock::now();
    const double used_before = ThreadSeconds();
    kernel();
    const double used = ThreadSeconds() - used_before;
    const double draw = static_cast<double>(RandomBits(key_, 0, kernels_++)) * 0x1p-32;
    const double target = used / options_.speed * (1 + options_.jitter * (2 * draw - 1));
    stats_->used += used;
    stats_->emulated += target;
    due_ += target;
    if (due_ > kShortestSleep) {
      const double gone = std::chrono::duration<double>(Clock::now() - start).count();
      std::this_thread::sleep_for(std::chrono::duration<double>(due_ - gone));
    }
    due_ -= std::chrono::duration<double>(Clock::now() - start).count();
    stats_->overrun = std::max(stats_->overrun, -due_);
  }

 private:
  SlowedOptions options_;
  SlowedStats own_;
  SlowedStats* stats_;
  RandomKey key_{options_.seed, HashName("slowed"), 0};
  uint64_t kernels_ = 0;
  double due_ = 0;
};

class NoEvent : public Event {
 public:
  void Synchronize() override {}
};

class SlowedStream : public Stream {
 public:
  SlowedStream(Device& device, Stretcher& stretcher) : device_(device), stretcher_(stretcher) {}
  void Copy(void* dst, const void* src, int64_t bytes, CopyKind /*kind*/) override {
    CopyBytes(dst, src, bytes);
  }
  void SetBytes(void* dst, int value, int64_t bytes) override {
    std::memset(dst, value, static_cast<size_t>(bytes));
  }
  void Record(Event& /*event*/) override {}
  void Wait(Event& /*event*/) override {}
  void Synchronize() override {}
  Device& device() override { return device_; }

 protected:
  void Submit(void (*run)(const void*, void*), const void* call, size_t /*size*/) override {
    stretcher_.Run([=] { run(call, nullptr); });
  }

 private:
  Device& device_;
  Stretcher& stretcher_;
};

class SlowedCpu : public CpuMemory {
 public:
  SlowedCpu(const SlowedOptions& options, SlowedStats* stats) : stretcher_(options, stats) {
    SetFirstStream(NewStream());
  }
  ~SlowedCpu() override { Shutdown(); }
  SlowedCpu(const SlowedCpu&) = delete;
  SlowedCpu& operator=(const SlowedCpu&) = delete;
  std::unique_ptr<Stream> NewStream() final {
    return std::make_unique<SlowedStream>(*this, stretcher_);
  }
  std::unique_ptr<Event> NewEvent() override { return std::make_unique<NoEvent>(); }
  void Synchronize() override {}

 private:
  Stretcher stretcher_;
};

}  // namespace

std::unique_ptr<Device> NewSlowedDevice(const SlowedOptions& options, SlowedStats* stats) {
  Require(options.speed > 0 && options.speed <= 1, "a speed of ", options.speed,
          ": give a part of this machine's, above 0 and up to 1");
  Require(options.jitter >= 0 && options.jitter < 1, "a jitter of ", options.jitter);
  return std::make_unique<SlowedCpu>(options, stats);
}

}  // namespace pando
