// ParallelFor on std::thread, for ThreadSanitizer: libgomp is not instrumented, so that tsan could
// not tell its barriers from races. Threads are started per call; speed is no concern here.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "engine/cpu/parallel.h"

namespace pando {
namespace {
std::atomic<int> num_threads{2};
thread_local bool inside = false;
}  // namespace

void ParallelFor(int64_t n, int64_t grain, RangeBody body) {
  if (n <= 0) return;
  const int64_t chunks = (n + grain - 1) / grain;
  const int64_t threads = inside ? 1 : std::min<int64_t>(num_threads, chunks);
  auto work = [&](int64_t t) {
    const bool was_inside = inside;
    inside = true;
    for (int64_t c = chunks * t / threads; c < chunks * (t + 1) / threads; ++c) {
      body(c * grain, std::min(n, (c + 1) * grain));
    }
    inside = was_inside;
  };
  std::vector<std::thread> pool;
  for (int64_t t = 1; t < threads; ++t) pool.emplace_back(work, t);
  work(0);
  for (std::thread& t : pool) t.join();
}

int NumThreads() { return num_threads; }

void SetNumThreads(int n) { num_threads = std::max(1, n); }

}  // namespace pando
