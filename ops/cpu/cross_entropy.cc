#include "ops/kernels/cross_entropy.h"

#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"
#include "ops/cpu/sum_pieces.h"
#include "ops/math.h"

namespace pando::PANDO_ISA {
namespace {

constexpr int64_t kRowGrain = 4;

// Elements of a row between two looks at its maximum: they stay in the first-level cache, so that a
// row is read from memory once.
constexpr int64_t kBlock = 2048;

// The most negative finite number: a maximum to start from that is safe to subtract, even from
// logits that are all minus infinity.
template <typename C>
constexpr C kLowest = sizeof(C) == 8 ? C(-__DBL_MAX__) : C(-__FLT_MAX__);

// log(sum over c of exp(x[c])), keeping the running maximum out of the exponentials.
template <typename T, typename C = ComputeType<T>>
C LogSumExp(const T* x, int64_t n) {
  C max = kLowest<C>;
  C sum = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    C block_max = max;
#pragma omp simd reduction(max : block_max)
    for (int64_t c = begin; c < end; ++c) {
      const C v = ToFloat(x[c]);
      block_max = v > block_max ? v : block_max;
    }
    const C block_sum = SumInPieces<C>(
        begin, end, [x, block_max](int64_t c) { return Exp(ToFloat(x[c]) - block_max); });
    sum = sum * Exp(max - block_max) + block_sum;
    max = block_max;
  }
  return max + Log(sum);
}

// dx = (exp(x - logsumexp) - (c == target)) * scale in the first `vocab` columns, 0 in the rest.
template <typename T, typename C = ComputeType<T>>
void GradientRow(const T* x, C logsumexp, int32_t target, C scale, int64_t vocab, int64_t stride,
                 T* dx) {
  const C at_target = (Exp(ToFloat(x[target]) - logsumexp) - C(1)) * scale;
#pragma omp simd
  for (int64_t c = 0; c < vocab; ++c) dx[c] = RoundTo<T>(Exp(ToFloat(x[c]) - logsumexp) * scale);
  dx[target] = RoundTo<T>(at_target);
  for (int64_t c = vocab; c < stride; ++c) dx[c] = RoundTo<T>(C(0));
}

template <typename T>
void ZeroRow(int64_t stride, T* dx) {
  __builtin_memset(dx, 0, static_cast<size_t>(stride) * sizeof(T));
}

bool Counts(int32_t target, int64_t vocab, int32_t ignore_index) {
  return target != ignore_index && target >= 0 && target < vocab;
}

void ReportIfInvalid(int32_t target, int64_t vocab, int32_t ignore_index, int32_t* error) {
  if (target != ignore_index && !Counts(target, vocab, ignore_index)) {
    __atomic_fetch_or(error, 1, __ATOMIC_RELAXED);
  }
}

template <typename C>
C Factor(double scale, const float* factor) {
  return static_cast<C>(factor == nullptr ? scale : scale * static_cast<double>(*factor));
}

template <typename T, typename C = ComputeType<T>>
void ForwardTyped(const CrossEntropyForwardArgs& args) {
  C* losses = static_cast<C*>(args.losses);
  C* logsumexp = static_cast<C*>(args.logsumexp);
  ParallelFor(args.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = static_cast<const T*>(args.logits) + r * args.stride;
      const int32_t target = args.targets[r];
      ReportIfInvalid(target, args.vocab, args.ignore_index, args.error);
      const bool counts = Counts(target, args.vocab, args.ignore_index);
      const C lse = counts ? LogSumExp(x, args.vocab) : C(0);
      losses[r] = counts ? lse - ToFloat(x[target]) : C(0);
      if (logsumexp != nullptr) logsumexp[r] = lse;
    }
  });
}

void Forward(const CrossEntropyForwardArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("cross_entropy", args.dtype,
                                             [&](auto tag) { ForwardTyped<decltype(tag)>(args); });
}

template <typename T, typename C = ComputeType<T>>
void BackwardTyped(const CrossEntropyBackwardArgs& args) {
  const C* logsumexp = static_cast<const C*>(args.logsumexp);
  const C scale = Factor<C>(args.scale, args.factor);
  ParallelFor(args.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* dx = static_cast<T*>(args.dlogits) + r * args.stride;
      if (Counts(args.targets[r], args.vocab, args.ignore_index)) {
        GradientRow(static_cast<const T*>(args.logits) + r * args.stride, logsumexp[r],
                    args.targets[r], scale, args.vocab, args.stride, dx);
      } else {
        ZeroRow(args.stride, dx);
      }
    }
  });
}

void Backward(const CrossEntropyBackwardArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("cross_entropy backward", args.dtype,
                                             [&](auto tag) { BackwardTyped<decltype(tag)>(args); });
}

template <typename T, typename C = ComputeType<T>>
void FusedTyped(const CrossEntropyFusedArgs& args) {
  C* losses = static_cast<C*>(args.losses);
  const C scale = Factor<C>(args.scale, args.factor);
  ParallelFor(args.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* x = static_cast<T*>(args.logits) + r * args.stride;
      const int32_t target = args.targets[r];
      ReportIfInvalid(target, args.vocab, args.ignore_index, args.error);
      if (!Counts(target, args.vocab, args.ignore_index)) {
        losses[r] = C(0);
        ZeroRow(args.stride, x);
        continue;
      }
      const C logsumexp = LogSumExp(x, args.vocab);
      losses[r] = logsumexp - ToFloat(x[target]);
      GradientRow(x, logsumexp, target, scale, args.vocab, args.stride, x);
    }
  });
}

void Fused(const CrossEntropyFusedArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("cross_entropy fused", args.dtype,
                                             [&](auto tag) { FusedTyped<decltype(tag)>(args); });
}

void LossSum(const LossSumArgs& args, void* /*stream*/) {
  Dispatch<float, double>("loss_sum", args.dtype, [&](auto tag) {
    const auto* losses = static_cast<const decltype(tag)*>(args.losses);
    double sum = args.accumulate ? *args.sum : 0.0;
    int64_t count = args.accumulate ? *args.count : 0;
    for (int64_t r = 0; r < args.rows; ++r) {
      if (!Counts(args.targets[r], args.vocab, args.ignore_index)) continue;
      sum += losses[r];
      ++count;
    }
    *args.sum = sum;
    *args.count = count;
  });
}

}  // namespace

extern const CrossEntropyKernels kCrossEntropy;
const CrossEntropyKernels kCrossEntropy = {
    .forward = Forward, .backward = Backward, .fused = Fused, .loss_sum = LossSum};

}  // namespace pando::PANDO_ISA
