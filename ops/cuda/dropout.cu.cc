#include "ops/kernels/dropout.h"

#include "engine/cuda/block.h"
#include "engine/cuda/dispatch.h"
#include "ops/cuda/divisor.h"
#include "ops/cuda/tables.h"

namespace pando {
namespace {

constexpr int kThreads = 256;

// What a thread handles: a 16-byte Pack, or as much element by element. Either way whole blocks of
// four random words.
template <typename T>
constexpr int kUnit = kPackWidth<T>;

// A block to a tile of kThreads units of one sample.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kThreads)
    DropoutKernel(DropoutArgs args, int64_t tiles, Divisor by_tiles, uint32_t threshold,
                  float scale) {
  constexpr int kW = kUnit<T>;
  const T* residual = static_cast<const T*>(args.residual);
  for (int64_t i = blockIdx.x; i < args.samples * tiles; i += gridDim.x) {
    const int64_t sample = Quotient(i, by_tiles);
    const int64_t element = ((i - sample * tiles) * kThreads + threadIdx.x) * kW;
    if (element >= args.elements) continue;
    const int64_t left = args.elements - element;
    const int n = kWide || left >= kW ? kW : static_cast<int>(left);
    const int64_t at = sample * args.elements + element;
    auto v = LoadPack<kWide, kW>(static_cast<const T*>(args.x) + at, n);
    const auto base = residual == nullptr ? Pack<T, kW>{} : LoadPack<kWide, kW>(residual + at, n);
    const auto id = static_cast<uint64_t>(args.sample_ids[sample]);
    PANDO_UNROLL
    for (int q = 0; q < kW; q += 4) {
      const Philox4 bits = RandomBlock(args.key, id, static_cast<uint64_t>(element + q));
      for (int j = 0; j < 4; ++j) {
        const float kept = ToFloat(v.v[q + j]) * (bits.v[j] < threshold ? 0.0f : scale);
        v.v[q + j] = RoundTo<T>(residual == nullptr ? kept : ToFloat(base.v[q + j]) + kept);
      }
    }
    StorePack<kWide, kW>(static_cast<T*>(args.y) + at, n, v);
  }
}

template <typename T, bool kWide>
void RunTyped(const DropoutArgs& args, void* stream) {
  constexpr int64_t kTile = static_cast<int64_t>(kThreads) * kUnit<T>;
  const int64_t tiles = (args.elements + kTile - 1) / kTile;
  if (tiles == 0) return;
  const float scale = args.p < 1 ? static_cast<float>(1 / (1 - args.p)) : 0.0f;
  Launch(DropoutKernel<T, kWide>, GridFor(args.samples * tiles, 1), kThreads, 0, stream, args,
         tiles, MakeDivisor(tiles), DropThreshold(args.p), scale);
}

void Run(const DropoutArgs& args, void* stream) {
  // Null is aligned.
  const bool aligned =
      IsWideAligned(args.x) && IsWideAligned(args.residual) && IsWideAligned(args.y);
  DispatchCuda<float, BFloat16, Float16>("dropout", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool wide = aligned && args.elements % kUnit<T> == 0;
    wide ? RunTyped<T, true>(args, stream) : RunTyped<T, false>(args, stream);
  });
}

}  // namespace

const DropoutKernels kCudaDropout = {.run = Run};

}  // namespace pando
