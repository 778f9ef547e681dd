#pragma once

// The instructions of ptx.h for tests/emulated_cuda, lane by lane as the PTX ISA's tables say.
// Include ptx.h.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/types.h"

namespace pando {

/// An element of a pair: 0 the lower half.
template <typename T>
float Unpack(uint32_t pair, int half) {
  return ToFloat(T{static_cast<uint16_t>(pair >> (16 * half))});
}

template <typename T>
uint32_t PackPair(float low, float high) {
  return RoundTo<T>(low).bits | static_cast<uint32_t>(RoundTo<T>(high).bits) << 16;
}

inline float FastExp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126F ? 0.0F : y;
}

/// d += A B, a k of 8 at a time.
template <typename T, int kSteps>
void MmaTwin(float (&d)[4], const uint32_t* a, const uint32_t* b) {
  struct Fragments {
    uint32_t a[2 * kSteps], b[kSteps];
  } mine;
  std::memcpy(mine.a, a, sizeof(mine.a));
  std::memcpy(mine.b, b, sizeof(mine.b));
  const int lane = emulated_cuda::Lane();
  const Fragments* all = emulated_cuda::WarpGather(mine);
  const int group = lane / 4, in_group = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int below = i / 2;  // row group + 8
    const int column = 2 * in_group + i % 2;
    for (int k = 0; k < 8 * kSteps; ++k) {
      const int step = k / 8, owner = k % 8 / 2, half = k % 2;
      const float left = Unpack<T>(all[4 * group + owner].a[2 * step + below], half);
      d[i] += left * Unpack<T>(all[4 * column + owner].b[step], half);
    }
  }
}

inline void MmaM16N8K8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  const uint32_t a[2] = {a0, a1};
  MmaTwin<Float16, 1>(d, a, &b0);
}

template <typename T>
void MmaM16N8K16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  MmaTwin<T, 2>(d, a, b);
}

/// Stops where a GPU would fault on an address that is not aligned to 16 bytes.
inline void CheckAligned16(const void* p) {
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0) __builtin_trap();
}

template <bool kTransposed, int kCount>
void LoadMatrix(uint32_t (&r)[kCount], const void* row) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  const int lane = emulated_cuda::Lane();
  if (lane < 8 * kCount) CheckAligned16(row);
  const void* const* rows = emulated_cuda::WarpGather(row);
  const int group = lane / 4, in_group = lane % 4;
  for (int m = 0; m < kCount; ++m) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int from = kTransposed ? 2 * in_group + i : group;
      const int column = kTransposed ? group : 2 * in_group + i;
      std::memcpy(&pair[i], static_cast<const uint16_t*>(rows[8 * m + from]) + column,
                  sizeof(uint16_t));
    }
    r[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
}

/// Copies that a thread has begun. They are done when waited for and not before, so that a missing
/// wait shows; until then what they overwrite is NaN.
struct PendingCopies {
  struct Copy {
    void* to;
    const void* from;
    bool valid;
    int group;
  };
  std::vector<Copy> copies;
  int groups = 0;  ///< closed ones
};

/// Of the thread that runs. One block runs at a time.
inline PendingCopies& MyPendingCopies() {
  static std::vector<PendingCopies> threads(1024);
  return threads[threadIdx.x];
}

inline void CopyAsync16(void* shared, const void* global, bool valid) {
  CheckAligned16(shared);
  if (valid) CheckAligned16(global);
  PendingCopies& mine = MyPendingCopies();
  std::memset(shared, 0xFF, 16);
  mine.copies.push_back({shared, global, valid, mine.groups});
}

inline void CommitCopies() { ++MyPendingCopies().groups; }

template <int kPending>
void WaitForCopies() {
  PendingCopies& mine = MyPendingCopies();
  size_t kept = 0;
  for (const PendingCopies::Copy& copy : mine.copies) {
    if (copy.group >= mine.groups - kPending) {
      mine.copies[kept++] = copy;
    } else if (copy.valid) {
      std::memcpy(copy.to, copy.from, 16);
    } else {
      std::memset(copy.to, 0, 16);
    }
  }
  mine.copies.resize(kept);
}

}  // namespace pando
