// ParallelFor on OpenMP: the same pool of threads that oneDNN uses, so that the two never compete.
#include <omp.h>

#include <algorithm>

#include "engine/cpu/parallel.h"

namespace pando {

void ParallelFor(int64_t n, int64_t grain, RangeBody body) {
  if (n <= 0) return;
  const int64_t chunks = (n + grain - 1) / grain;
  if (chunks == 1 || omp_get_max_threads() == 1 || omp_in_parallel()) {
    for (int64_t c = 0; c < chunks; ++c) body(c * grain, std::min(n, (c + 1) * grain));
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t c = 0; c < chunks; ++c) body(c * grain, std::min(n, (c + 1) * grain));
}

int NumThreads() { return omp_get_max_threads(); }

void SetNumThreads(int n) { omp_set_num_threads(std::max(1, n)); }

}  // namespace pando
