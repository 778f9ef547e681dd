// AdamW in one pass over parameters, moments and gradient, writing the compute copy on the way.

#include "engine/cuda/block.h"
#include "engine/cuda/dispatch.h"
#include "engine/cuda/launch.h"
#include "engine/cuda/vector_kernels_cuda.h"
#include "engine/vector_math.h"

namespace pando {
namespace {

constexpr unsigned kThreads = 256;

/// What becomes of the updated parameters beside the masters.
struct NoCopy {
  template <bool kWide>
  __device__ static void Store(const AdamWArgs& /*args*/, int64_t /*i*/,
                               const Pack<float, 4>& /*p*/) {}
};
template <typename T>
struct NearestCopy {
  template <bool kWide>
  __device__ static void Store(const AdamWArgs& args, int64_t i, const Pack<float, 4>& p) {
    Pack<T, 4> copy;
    for (int k = 0; k < 4; ++k) copy.v[k] = RoundTo<T>(p.v[k]);
    StorePack<kWide>(static_cast<T*>(args.copy) + i, args.n - i, copy);
  }
};
struct StochasticCopy {
  template <bool kWide>
  __device__ static void Store(const AdamWArgs& args, int64_t i, const Pack<float, 4>& p) {
    const auto first = static_cast<uint64_t>(args.first_element + i);
    Pack<BFloat16, 4> copy;
    if constexpr (kWide) {  // element `first` begins a block of Philox
      const Philox4 bits = RandomBlock(args.key, 0, first);
      for (int k = 0; k < 4; ++k) copy.v[k] = StochasticBFloat16(p.v[k], bits.v[k]);
    } else {
      for (int k = 0; k < 4; ++k) {
        copy.v[k] = StochasticBFloat16(p.v[k], RandomBits(args.key, 0, first + k));
      }
    }
    StorePack<kWide>(static_cast<BFloat16*>(args.copy) + i, args.n - i, copy);
  }
};

template <bool kWide, typename Copy>
__global__ void AdamWKernel(AdamWArgs args, AdamWFactors factors) {
  const auto grad_scale = static_cast<float>(ScaledBy(args.grad_factor, args.grad_scale));
  for (int64_t i = GridThread() * 4; i < args.n; i += GridThreads() * 4) {
    const int64_t left = args.n - i;
    Pack<float, 4> p = LoadPack<kWide, 4>(args.p + i, left);
    Pack<float, 4> m = LoadPack<kWide, 4>(args.m + i, left);
    Pack<float, 4> v = LoadPack<kWide, 4>(args.v + i, left);
    const Pack<float, 4> grad = LoadPack<kWide, 4>(args.grad + i, left);
    for (int k = 0; k < 4; ++k) {
      AdamWElement(factors, grad_scale * grad.v[k], p.v[k], m.v[k], v.v[k]);
    }
    StorePack<kWide>(args.p + i, left, p);
    StorePack<kWide>(args.m + i, left, m);
    StorePack<kWide>(args.v + i, left, v);
    Copy::template Store<kWide>(args, i, p);
  }
}

template <typename Copy>
void AdamWWithCopy(const AdamWArgs& args, void* stream) {
  const bool wide = IsWideAligned(args.p) && IsWideAligned(args.m) && IsWideAligned(args.v) &&
                    IsWideAligned(args.grad) && IsWideAligned(args.copy) &&
                    args.first_element % 4 == 0;
  const auto kernel = wide ? AdamWKernel<true, Copy> : AdamWKernel<false, Copy>;
  Launch(kernel, GridFor(args.n, int64_t{4} * kThreads), kThreads, 0, stream, args,
         MakeAdamWFactors(args));
}

}  // namespace

void CudaAdamW(const AdamWArgs& args, void* native_stream) {
  if (args.copy == nullptr) {
    AdamWWithCopy<NoCopy>(args, native_stream);
  } else if (args.rounding == Rounding::kNearest) {
    DispatchCuda<float, BFloat16, Float16>("adamw", args.copy_dtype, [&](auto tag) {
      AdamWWithCopy<NearestCopy<decltype(tag)>>(args, native_stream);
    });
  } else if (args.copy_dtype == DType::kBF16) {
    AdamWWithCopy<StochasticCopy>(args, native_stream);
  } else {
    ThrowUnsupportedOnCuda("adamw with stochastic rounding", args.copy_dtype);
  }
}

}  // namespace pando
