#include "ops/kernels/dropout.h"

#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/random_tile.h"

namespace pando::PANDO_ISA {
namespace {

// Tiles of random bits per task.
constexpr int64_t kTileGrain = 64;

template <typename T, typename C = ComputeType<T>>
void DropTile(const uint32_t* bits, uint32_t threshold, C scale, const T* x, int64_t n, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    y[i] = RoundTo<T>(ToFloat(x[i]) * (bits[i] < threshold ? C(0) : scale));
  }
}

template <typename T, typename C = ComputeType<T>>
void DropTileOnto(const uint32_t* bits, uint32_t threshold, C scale, const T* x, const T* residual,
                  int64_t n, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C kept = ToFloat(x[i]) * (bits[i] < threshold ? C(0) : scale);
    y[i] = RoundTo<T>(ToFloat(residual[i]) + kept);
  }
}

template <typename T, typename C = ComputeType<T>>
void RunTyped(const DropoutArgs& args) {
  const uint32_t threshold = DropThreshold(args.p);
  const C scale = args.p < 1 ? static_cast<C>(1 / (1 - args.p)) : C(0);
  const T* residual = static_cast<const T*>(args.residual);
  const int64_t tiles = (args.elements + kRandomTile - 1) / kRandomTile;
  ParallelFor(args.samples * tiles, kTileGrain, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t sample = tile / tiles;
      const int64_t from = tile % tiles * kRandomTile;
      const int64_t left = args.elements - from;
      const int64_t n = left < kRandomTile ? left : kRandomTile;
      const RandomTile random(args.key, args.sample_ids[sample], from, n);
      const int64_t at = sample * args.elements + from;
      const T* x = static_cast<const T*>(args.x) + at;
      T* y = static_cast<T*>(args.y) + at;
      if (residual == nullptr) {
        DropTile(random.data(), threshold, scale, x, n, y);
      } else {
        DropTileOnto(random.data(), threshold, scale, x, residual + at, n, y);
      }
    }
  });
}

void Run(const DropoutArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("dropout", args.dtype,
                                             [&](auto tag) { RunTyped<decltype(tag)>(args); });
}

}  // namespace

extern const DropoutKernels kDropout;
const DropoutKernels kDropout = {.run = Run};

}  // namespace pando::PANDO_ISA
