// The vector kernels on the CPU but for AdamW (adamw.cc). Each is bound by memory: one pass.

#include "engine/vector_kernels.h"

#include "engine/cpu/adamw.h"
#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/random_tile.h"
#include "engine/vector_math.h"

namespace pando::PANDO_ISA {
namespace {

// Elements per task: long enough to hide a thread's start, short enough to share evenly.
constexpr int64_t kGrain = 32768;

void Fill(const FillArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double, int32_t, int64_t>("fill", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* y = static_cast<T*>(args.y);
    const T value = FromDouble<T>(args.value);
    ParallelFor(args.n, kGrain, [&](int64_t begin, int64_t end) {
      const T v = value;
      for (int64_t i = begin; i < end; ++i) y[i] = v;
    });
  });
}

// Loops lie in functions of their own: in a generic lambda GCC 12 ignores `omp simd`.
template <typename Y, typename X, typename C = ComputeType<Y>>
void AxpyRange(C a, const X* x, int64_t n, Y* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = RoundTo<Y>(ToFloat(y[i]) + a * C{ToFloat(x[i])});
}

template <typename Y, typename X>
void AxpyTyped(const AxpyArgs& args) {
  Y* y = static_cast<Y*>(args.y);
  const X* x = static_cast<const X*>(args.x);
  const auto a = static_cast<ComputeType<Y>>(ScaledBy(args.factor, args.a));
  ParallelFor(args.n, kGrain,
              [&](int64_t begin, int64_t end) { AxpyRange(a, x + begin, end - begin, y + begin); });
}

void Axpy(const AxpyArgs& args, void* /*stream*/) {
  if (args.x_dtype == args.y_dtype) {
    Dispatch<float, BFloat16, Float16, double>(
        "axpy", args.y_dtype, [&](auto tag) { AxpyTyped<decltype(tag), decltype(tag)>(args); });
    return;
  }
  if (args.y_dtype != DType::kF32) UnsupportedDType("axpy", args.y_dtype);
  Dispatch<BFloat16, Float16>("axpy", args.x_dtype,
                              [&](auto tag) { AxpyTyped<float, decltype(tag)>(args); });
}

template <typename T>
void ScaleRange(ComputeType<T> a, int64_t n, T* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = RoundTo<T>(a * ToFloat(x[i]));
}

void Scale(const ScaleArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("scale", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* x = static_cast<T*>(args.x);
    const auto a = static_cast<ComputeType<T>>(ScaledBy(args.factor, args.a));
    ParallelFor(args.n, kGrain,
                [&](int64_t begin, int64_t end) { ScaleRange(a, end - begin, x + begin); });
  });
}

template <typename Y, typename X>
void CastRange(const X* x, int64_t n, Y* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = RoundFrom<Y>(x[i]);
}

void Cast(const CastArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("cast", args.y_dtype, [&](auto y_tag) {
    auto* y = static_cast<decltype(y_tag)*>(args.y);
    Dispatch<float, BFloat16, Float16, double>("cast", args.x_dtype, [&](auto x_tag) {
      const auto* x = static_cast<const decltype(x_tag)*>(args.x);
      ParallelFor(args.n, kGrain, [&](int64_t begin, int64_t end) {
        CastRange(x + begin, end - begin, y + begin);
      });
    });
  });
}

void StochasticCastTile(const uint32_t* bits, const float* x, int64_t n, BFloat16* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = StochasticBFloat16(x[i], bits[i]);
}

void StochasticCast(const StochasticCastArgs& args, void* /*stream*/) {
  ParallelFor(args.n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kRandomTile) {
      const int64_t n = i + kRandomTile < end ? kRandomTile : end - i;
      const RandomTile random(args.key, 0, args.first_element + i, n);
      StochasticCastTile(random.data(), args.x + i, n, args.y + i);
    }
  });
}

template <typename T>
double SumSquaresOf(const T* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const double v = ToFloat(x[i]);
    sum += v * v;
  }
  return sum;
}

void SumSquares(const SumSquaresArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("sum_squares", args.dtype, [&](auto tag) {
    const auto* x = static_cast<const decltype(tag)*>(args.x);
    ParallelFor(args.n, kSumSquaresChunk, [&](int64_t begin, int64_t end) {
      args.scratch[begin / kSumSquaresChunk] = SumSquaresOf(x + begin, end - begin);
    });
  });
  double total = 0;
  for (int64_t c = 0; c < SumSquaresScratch(args.n); ++c) total += args.scratch[c];
  *args.out = args.accumulate ? *args.out + total : total;
}

// Infinity and NaN are the values whose exponent bits are all ones.
bool AnyNonFinite(const uint16_t* bits, int64_t n, uint16_t exponent) {
  int any = 0;
#pragma omp simd reduction(| : any)
  for (int64_t i = 0; i < n; ++i) any |= (bits[i] & exponent) == exponent;
  return any != 0;
}
bool AnyNonFinite(const BFloat16* x, int64_t n) { return AnyNonFinite(&x->bits, n, 0x7F80u); }
bool AnyNonFinite(const Float16* x, int64_t n) { return AnyNonFinite(&x->bits, n, 0x7C00u); }

template <typename T>
bool AnyNonFinite(const T* x, int64_t n) {
  int any = 0;
#pragma omp simd reduction(| : any)
  for (int64_t i = 0; i < n; ++i) any |= !(x[i] - x[i] == 0);
  return any != 0;
}

void NonFinite(const NonFiniteArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("non_finite", args.dtype, [&](auto tag) {
    const auto* x = static_cast<const decltype(tag)*>(args.x);
    ParallelFor(args.n, kGrain, [&](int64_t begin, int64_t end) {
      if (AnyNonFinite(x + begin, end - begin)) __atomic_fetch_or(args.flag, 1, __ATOMIC_RELAXED);
    });
  });
}

}  // namespace

extern const VectorKernels kVectorKernels;
const VectorKernels kVectorKernels = {
    .fill = Fill,
    .axpy = Axpy,
    .scale = Scale,
    .cast = Cast,
    .stochastic_cast = StochasticCast,
    .sum_squares = SumSquares,
    .non_finite = NonFinite,
    .adamw = AdamW,
};

}  // namespace pando::PANDO_ISA
