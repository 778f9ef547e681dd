// The vector kernels on GPUs but for AdamW (adamw.cu.cc). Each is bound by memory: one pass, 16
// bytes at a time where pointers are aligned.

#include "engine/cuda/block.h"
#include "engine/cuda/dispatch.h"
#include "engine/cuda/launch.h"
#include "engine/cuda/vector_kernels_cuda.h"
#include "engine/vector_math.h"

namespace pando {
namespace {

constexpr unsigned kThreads = 256;

/// The grid for n elements, `per_thread` each.
unsigned GridForElements(int64_t n, int64_t per_thread) {
  return GridFor(n, per_thread * kThreads);
}

// Fill copies bits, so that its instances are one per size.
template <bool kWide, typename Bits>
__global__ void FillKernel(Bits* y, int64_t n, Bits value) {
  constexpr int kWidth = kPackWidth<Bits>;
  Pack<Bits, kWidth> pack;
  for (int k = 0; k < kWidth; ++k) pack.v[k] = value;
  for (int64_t i = GridThread() * kWidth; i < n; i += GridThreads() * kWidth) {
    StorePack<kWide>(y + i, n - i, pack);
  }
}

template <typename T, typename Bits>
void FillTyped(const FillArgs& args, void* stream) {
  const Bits value = __builtin_bit_cast(Bits, FromDouble<T>(args.value));
  const auto kernel = IsWideAligned(args.y) ? FillKernel<true, Bits> : FillKernel<false, Bits>;
  Launch(kernel, GridForElements(args.n, kPackWidth<Bits>), kThreads, 0, stream,
         static_cast<Bits*>(args.y), args.n, value);
}

void Fill(const FillArgs& args, void* stream) {
  DispatchCuda<float, BFloat16, Float16, double, int32_t, int64_t>(
      "fill", args.dtype, [&](auto tag) {
        using T = decltype(tag);
        if constexpr (sizeof(T) == 2) {
          FillTyped<T, uint16_t>(args, stream);
        } else if constexpr (sizeof(T) == 4) {
          FillTyped<T, uint32_t>(args, stream);
        } else {
          FillTyped<T, uint64_t>(args, stream);
        }
      });
}

template <bool kWide, typename Y, typename X>
__global__ void AxpyKernel(Y* y, const X* x, int64_t n, double a, const float* factor) {
  constexpr int kWidth = kPackWidth<Y>;
  const auto scaled = static_cast<ComputeType<Y>>(ScaledBy(factor, a));
  for (int64_t i = GridThread() * kWidth; i < n; i += GridThreads() * kWidth) {
    Pack<Y, kWidth> sum = LoadPack<kWide, kWidth>(y + i, n - i);
    const Pack<X, kWidth> term = LoadPack<kWide, kWidth>(x + i, n - i);
    for (int k = 0; k < kWidth; ++k) {
      sum.v[k] = RoundTo<Y>(ToFloat(sum.v[k]) + scaled * ComputeType<Y>{ToFloat(term.v[k])});
    }
    StorePack<kWide>(y + i, n - i, sum);
  }
}

template <typename Y, typename X>
void AxpyTyped(const AxpyArgs& args, void* stream) {
  const bool wide = IsWideAligned(args.y) && IsWideAligned(args.x);
  const auto kernel = wide ? AxpyKernel<true, Y, X> : AxpyKernel<false, Y, X>;
  Launch(kernel, GridForElements(args.n, kPackWidth<Y>), kThreads, 0, stream,
         static_cast<Y*>(args.y), static_cast<const X*>(args.x), args.n, args.a, args.factor);
}

void Axpy(const AxpyArgs& args, void* stream) {
  if (args.x_dtype == args.y_dtype) {
    DispatchCuda<float, BFloat16, Float16, double>("axpy", args.y_dtype, [&](auto tag) {
      AxpyTyped<decltype(tag), decltype(tag)>(args, stream);
    });
    return;
  }
  if (args.y_dtype != DType::kF32) ThrowUnsupportedOnCuda("axpy", args.y_dtype);
  DispatchCuda<BFloat16, Float16>("axpy", args.x_dtype,
                                  [&](auto tag) { AxpyTyped<float, decltype(tag)>(args, stream); });
}

template <bool kWide, typename T>
__global__ void ScaleKernel(T* x, int64_t n, double a, const float* factor) {
  constexpr int kWidth = kPackWidth<T>;
  const auto scaled = static_cast<ComputeType<T>>(ScaledBy(factor, a));
  for (int64_t i = GridThread() * kWidth; i < n; i += GridThreads() * kWidth) {
    Pack<T, kWidth> pack = LoadPack<kWide, kWidth>(x + i, n - i);
    for (int k = 0; k < kWidth; ++k) pack.v[k] = RoundTo<T>(scaled * ToFloat(pack.v[k]));
    StorePack<kWide>(x + i, n - i, pack);
  }
}

void Scale(const ScaleArgs& args, void* stream) {
  DispatchCuda<float, BFloat16, Float16, double>("scale", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto kernel = IsWideAligned(args.x) ? ScaleKernel<true, T> : ScaleKernel<false, T>;
    Launch(kernel, GridForElements(args.n, kPackWidth<T>), kThreads, 0, stream,
           static_cast<T*>(args.x), args.n, args.a, args.factor);
  });
}

template <bool kWide, typename Y, typename X>
__global__ void CastKernel(Y* y, const X* x, int64_t n) {
  constexpr int kWidth = 16 / (sizeof(X) > sizeof(Y) ? sizeof(X) : sizeof(Y));
  for (int64_t i = GridThread() * kWidth; i < n; i += GridThreads() * kWidth) {
    const Pack<X, kWidth> from = LoadPack<kWide, kWidth>(x + i, n - i);
    Pack<Y, kWidth> to;
    for (int k = 0; k < kWidth; ++k) to.v[k] = RoundFrom<Y>(from.v[k]);
    StorePack<kWide>(y + i, n - i, to);
  }
}

template <typename Y, typename X>
void CastTyped(const CastArgs& args, void* stream) {
  constexpr bool kDouble = sizeof(X) == 8 || sizeof(Y) == 8;  // rare: not worth a wide instance
  constexpr int kWidth = 16 / (sizeof(X) > sizeof(Y) ? sizeof(X) : sizeof(Y));
  const bool wide = IsWideAligned(args.y) && IsWideAligned(args.x);
  const auto kernel = wide ? CastKernel<!kDouble, Y, X> : CastKernel<false, Y, X>;
  Launch(kernel, GridForElements(args.n, kWidth), kThreads, 0, stream, static_cast<Y*>(args.y),
         static_cast<const X*>(args.x), args.n);
}

void Cast(const CastArgs& args, void* stream) {
  DispatchCuda<float, BFloat16, Float16, double>("cast", args.y_dtype, [&](auto y_tag) {
    DispatchCuda<float, BFloat16, Float16, double>("cast", args.x_dtype, [&](auto x_tag) {
      CastTyped<decltype(y_tag), decltype(x_tag)>(args, stream);
    });
  });
}

// A thread takes the elements of one block of Philox. `lead` elements of the first block come
// before element 0; the wide kernel has none.
template <bool kWide>
__global__ void StochasticCastKernel(StochasticCastArgs args, int lead) {
  for (int64_t i = GridThread() * 4 - lead; i < args.n; i += GridThreads() * 4) {
    const Philox4 bits = RandomBlock(args.key, 0, static_cast<uint64_t>(args.first_element + i));
    if constexpr (kWide) {
      const Pack<float, 4> from = LoadPack<true, 4>(args.x + i, args.n - i);
      Pack<BFloat16, 4> to;
      for (int k = 0; k < 4; ++k) to.v[k] = StochasticBFloat16(from.v[k], bits.v[k]);
      StorePack<true>(args.y + i, args.n - i, to);
    } else {
      for (int k = 0; k < 4; ++k) {
        if (i + k < 0 || i + k >= args.n) continue;
        args.y[i + k] = StochasticBFloat16(args.x[i + k], bits.v[k]);
      }
    }
  }
}

void StochasticCast(const StochasticCastArgs& args, void* stream) {
  const int lead = static_cast<int>(args.first_element % 4);
  const bool wide = lead == 0 && IsWideAligned(args.x) && IsWideAligned(args.y);
  const auto kernel = wide ? StochasticCastKernel<true> : StochasticCastKernel<false>;
  if (args.n > 0) {
    Launch(kernel, GridForElements(args.n + lead, 4), kThreads, 0, stream, args, lead);
  }
}

// A block sums a chunk; both loads give each thread the same elements, so that the sum does not
// depend on alignment.
template <bool kWide, typename T>
__global__ void SumSquaresKernel(const T* x, int64_t n, double* partial) {
  constexpr int kWidth = kPackWidth<T>;
  const int64_t chunks = SumSquaresScratch(n);
  for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
    const int64_t begin = c * kSumSquaresChunk;
    const int64_t end = begin + kSumSquaresChunk < n ? begin + kSumSquaresChunk : n;
    double sums[2] = {0, 0};  // two, as additions wait for each other
    for (int64_t i = begin + int64_t{threadIdx.x} * kWidth; i < end;
         i += int64_t{kThreads} * kWidth) {
      const Pack<T, kWidth> pack = LoadPack<kWide, kWidth>(x + i, end - i);
      for (int k = 0; k < kWidth; ++k) {
        const double v = ToFloat(pack.v[k]);
        sums[k % 2] += v * v;
      }
    }
    const double sum = BlockReduce(SumOp(), sums[0] + sums[1], SharedMemory<double>());
    if (threadIdx.x == 0) partial[c] = sum;
  }
}

__global__ void AddPartialsKernel(const double* partial, int64_t count, double* out,
                                  bool accumulate) {
  double sum = 0;
  for (int64_t c = threadIdx.x; c < count; c += kThreads) sum += partial[c];
  sum = BlockReduce(SumOp(), sum, SharedMemory<double>());
  if (threadIdx.x == 0) *out = accumulate ? *out + sum : sum;
}

void SumSquares(const SumSquaresArgs& args, void* stream) {
  constexpr int64_t kShared = kThreads / kWarpSize * sizeof(double);
  const int64_t chunks = SumSquaresScratch(args.n);
  DispatchCuda<float, BFloat16, Float16, double>("sum_squares", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto kernel =
        IsWideAligned(args.x) ? SumSquaresKernel<true, T> : SumSquaresKernel<false, T>;
    Launch(kernel, GridFor(chunks, 1), kThreads, kShared, stream, static_cast<const T*>(args.x),
           args.n, args.scratch);
  });
  Launch(AddPartialsKernel, 1, kThreads, kShared, stream, args.scratch, chunks, args.out,
         args.accumulate);
}

// Infinity and NaN are the values whose exponent bits are all ones.
__device__ inline bool IsNonFinite(BFloat16 x) { return (x.bits & 0x7F80u) == 0x7F80u; }
__device__ inline bool IsNonFinite(Float16 x) { return (x.bits & 0x7C00u) == 0x7C00u; }
__device__ inline bool IsNonFinite(float x) { return !(x - x == 0); }
__device__ inline bool IsNonFinite(double x) { return !(x - x == 0); }

template <bool kWide, typename T>
__global__ void NonFiniteKernel(const T* x, int64_t n, int32_t* flag) {
  constexpr int kWidth = kPackWidth<T>;
  bool any = false;
  for (int64_t i = GridThread() * kWidth; i < n; i += GridThreads() * kWidth) {
    const Pack<T, kWidth> pack = LoadPack<kWide, kWidth>(x + i, n - i);
    for (int k = 0; k < kWidth; ++k) any |= IsNonFinite(pack.v[k]);
  }
  if (any) atomicOr(flag, 1);
}

void NonFinite(const NonFiniteArgs& args, void* stream) {
  DispatchCuda<float, BFloat16, Float16, double>("non_finite", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto kernel =
        IsWideAligned(args.x) ? NonFiniteKernel<true, T> : NonFiniteKernel<false, T>;
    Launch(kernel, GridForElements(args.n, kPackWidth<T>), kThreads, 0, stream,
           static_cast<const T*>(args.x), args.n, args.flag);
  });
}

}  // namespace

const VectorKernels kCudaVectorKernels = {
    .fill = Fill,
    .axpy = Axpy,
    .scale = Scale,
    .cast = Cast,
    .stochastic_cast = StochasticCast,
    .sum_squares = SumSquares,
    .non_finite = NonFinite,
    .adamw = CudaAdamW,
};

}  // namespace pando
