// AdamW in one pass over parameters, moments and gradient, writing the compute copy on the way.

#include "engine/cpu/adamw.h"

#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/random_tile.h"
#include "engine/vector_math.h"

namespace pando::PANDO_ISA {
namespace {

constexpr int64_t kGrain = 32768;

// The masters of a tile are updated first and rounded after, while they are in the first-level
// cache: the two loops vectorise better than one, and every kind of copy shares the first.
void UpdateTile(const AdamWArgs& args, const AdamWFactors& factors, float grad_scale, int64_t begin,
                int64_t end) {
  const AdamWFactors f = factors;
  float* p = args.p;
  float* m = args.m;
  float* v = args.v;
  const float* grad = args.grad;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) AdamWElement(f, grad_scale * grad[i], p[i], m[i], v[i]);
}

template <typename T>
void CopyTile(const AdamWArgs& args, int64_t begin, int64_t end) {
  T* copy = static_cast<T*>(args.copy);
  const float* p = args.p;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) copy[i] = RoundTo<T>(p[i]);
}

void CopyTileStochastic(const AdamWArgs& args, int64_t begin, int64_t end) {
  const RandomTile random(args.key, 0, args.first_element + begin, end - begin);
  const uint32_t* bits = random.data();
  BFloat16* copy = static_cast<BFloat16*>(args.copy) + begin;
  const float* p = args.p + begin;
#pragma omp simd
  for (int64_t i = 0; i < end - begin; ++i) copy[i] = StochasticBFloat16(p[i], bits[i]);
}

using CopyFunction = void (*)(const AdamWArgs& args, int64_t begin, int64_t end);

CopyFunction ChooseCopy(const AdamWArgs& args) {
  if (args.copy == nullptr) return [](const AdamWArgs&, int64_t, int64_t) {};
  if (args.rounding == Rounding::kStochastic && args.copy_dtype == DType::kBF16) {
    return CopyTileStochastic;
  }
  if (args.rounding == Rounding::kStochastic) {
    UnsupportedDType("adamw with stochastic rounding", args.copy_dtype);
  }
  CopyFunction copy = nullptr;
  Dispatch<float, BFloat16, Float16>("adamw", args.copy_dtype,
                                     [&](auto tag) { copy = CopyTile<decltype(tag)>; });
  return copy;
}

}  // namespace

void AdamW(const AdamWArgs& args, void* /*stream*/) {
  const AdamWFactors factors = MakeAdamWFactors(args);
  const float grad_scale = static_cast<float>(ScaledBy(args.grad_factor, args.grad_scale));
  const CopyFunction copy = ChooseCopy(args);
  ParallelFor(args.n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kRandomTile) {
      const int64_t tile_end = i + kRandomTile < end ? i + kRandomTile : end;
      UpdateTile(args, factors, grad_scale, i, tile_end);
      copy(args, i, tile_end);
    }
  });
}

}  // namespace pando::PANDO_ISA
