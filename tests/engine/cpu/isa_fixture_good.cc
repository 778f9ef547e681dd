// Kernels as they should be: all that leaves the object is in namespace pando::PANDO_ISA.
#include <cstdint>

#include "engine/cpu/parallel.h"
#include "engine/random.h"
#include "engine/types.h"

namespace pando::PANDO_ISA {

template <typename T>
__attribute__((noinline)) void Round(const float* x, T* y, int64_t n) {
  ParallelFor(n, 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = RoundTo<T>(x[i]);
  });
}

void RoundBoth(const float* x, BFloat16* a, Float16* b, int64_t n) {
  Round(x, a, n);
  Round(x, b, n);
}

void Draw(const RandomKey& key, uint32_t* y, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) y[i] = RandomBits(key, 0, i) ^ RandomBits(key, 1, i);
}

}  // namespace pando::PANDO_ISA
