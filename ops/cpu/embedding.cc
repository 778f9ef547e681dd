#include "ops/kernels/embedding.h"

#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"

namespace pando::PANDO_ISA {
namespace {

constexpr int64_t kRowGrain = 32;

bool IsToken(int32_t token, int64_t vocab) { return token >= 0 && token < vocab; }

template <typename T, typename C = ComputeType<T>>
void AddRows(const T* a, const T* b, int64_t cols, T* out) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) out[c] = RoundTo<T>(C{ToFloat(a[c])} + ToFloat(b[c]));
}

template <typename T>
void CopyOrZeroRow(const T* x, int64_t cols, T* out) {
  const auto bytes = static_cast<size_t>(cols) * sizeof(T);
  if (bytes == 0) return;  // the pointers may be null
  x == nullptr ? __builtin_memset(out, 0, bytes) : __builtin_memcpy(out, x, bytes);
}

template <typename T>
void ForwardTyped(const EmbeddingForwardArgs& args) {
  const int64_t cols = args.cols;
  const T* positions = static_cast<const T*>(args.positions);
  ParallelFor(args.count, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int32_t token = args.tokens[n];
      const bool valid = IsToken(token, args.vocab);
      if (!valid) __atomic_fetch_or(args.error, 1, __ATOMIC_RELAXED);
      const T* row = valid ? static_cast<const T*>(args.table) + token * cols : nullptr;
      T* out = static_cast<T*>(args.out) + n * cols;
      if (valid && positions != nullptr) {
        AddRows(row, positions + (n % args.length + args.offset) * cols, cols, out);
      } else {
        CopyOrZeroRow(row, cols, out);
      }
    }
  });
}

void Forward(const EmbeddingForwardArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("embedding", args.dtype,
                                             [&](auto tag) { ForwardTyped<decltype(tag)>(args); });
}

template <typename T, typename C = ComputeType<T>>
void Accumulate(const T* x, int64_t cols, C* sum) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) sum[c] += ToFloat(x[c]);
}

// A thread owns a band of columns and goes through all tokens in order: no two threads meet, the
// order of every sum is that of the tokens, and nothing needs sorting. No sum crosses columns, so
// the width of a band may depend on the number of threads.
template <typename T, typename C = ComputeType<T>>
void TableGradient(const EmbeddingBackwardArgs& args) {
  const int64_t cols = args.cols;
  const int64_t share = (cols + NumThreads() - 1) / NumThreads();
  const int64_t band = (share + 31) / 32 * 32;
  if (cols == 0) return;
  ParallelFor(cols, band, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < args.count; ++n) {
      const int32_t token = args.tokens[n];
      if (!IsToken(token, args.vocab)) continue;
      Accumulate(static_cast<const T*>(args.dout) + n * cols + begin, end - begin,
                 static_cast<C*>(args.dtable) + token * cols + begin);
    }
  });
}

template <typename T, typename C = ComputeType<T>>
void PositionGradient(const EmbeddingBackwardArgs& args) {
  const int64_t cols = args.cols;
  const int64_t used = args.length < args.count ? args.length : args.count;
  ParallelFor(used, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      C* sum = static_cast<C*>(args.dpositions) + (t + args.offset) * cols;
      for (int64_t n = t; n < args.count; n += args.length) {
        if (!IsToken(args.tokens[n], args.vocab)) continue;
        Accumulate(static_cast<const T*>(args.dout) + n * cols, cols, sum);
      }
    }
  });
}

void Backward(const EmbeddingBackwardArgs& args, void* /*stream*/) {
  Dispatch<float, BFloat16, Float16, double>("embedding backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (args.dtable != nullptr) TableGradient<T>(args);
    if (args.dpositions != nullptr) PositionGradient<T>(args);
  });
}

int64_t BackwardScratch(int64_t /*count*/, int64_t /*vocab*/) { return 0; }

}  // namespace

extern const EmbeddingKernels kEmbedding;
const EmbeddingKernels kEmbedding = {
    .forward = Forward, .backward = Backward, .backward_scratch = BackwardScratch};

}  // namespace pando::PANDO_ISA
