#pragma once

// What the benchmarks measure with, and on.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>
#include <vector>

#include "engine/cpu/cpu_device.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "engine/types.h"

namespace pando {

/// Which time counts.
enum class Clock {
  kWall,
  /// The processor time of all threads divided by their number, which a busy neighbour disturbs
  /// less.
  kProcessor,
};

/// Seconds of `clock`, from some moment on.
inline double Now(Clock clock = Clock::kWall) {
  if (clock == Clock::kProcessor) {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC / NumThreads();
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

/// Seconds that `run()` takes.
template <typename Run>
double SecondsOf(const Run& run, Clock clock = Clock::kWall) {
  const double start = Now(clock);
  run();
  return Now(clock) - start;
}

/// The least seconds of `run()`: once for nothing (first touches, what is made once), then three
/// times or more, until `seconds` have been spent.
template <typename Run>
double BestOf(double seconds, Clock clock, const Run& run) {
  run();
  double best = std::numeric_limits<double>::infinity();
  double total = 0;
  for (int i = 0; i < 3 || total < seconds; ++i) {
    const double took = SecondsOf(run, clock);
    total += took;
    best = std::min(best, took);
  }
  return best;
}

/// The middle value, the upper one of two. `values` are not empty.
inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Memory full of small numbers, of the kind that a training step computes in. f32 or bf16.
class Buffer {
 public:
  Buffer(DType dtype, int64_t elements)
      : bytes_((elements * SizeOf(dtype) / 64 + 1) * 64),
        data_(CpuDevice().AllocateFromSystem(bytes_)) {
    if (data_ == nullptr) throw OutOfMemory("no memory for a benchmark's numbers");
    for (int64_t i = 0; i < elements; ++i) {
      const float x = static_cast<float>(i * 7919 % 1000 - 500) * 1e-3f;
      if (dtype == DType::kF32) {
        static_cast<float*>(data_)[i] = x;
      } else {
        static_cast<BFloat16*>(data_)[i] = ToBFloat16(x);
      }
    }
  }
  ~Buffer() { CpuDevice().FreeToSystem(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() { return data_; }

 private:
  int64_t bytes_;
  void* data_;
};

}  // namespace pando
