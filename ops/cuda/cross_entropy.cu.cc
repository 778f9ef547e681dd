#include "ops/kernels/cross_entropy.h"

#include <algorithm>

#include "engine/cuda/block.h"
#include "engine/cuda/dispatch.h"
#include "ops/cuda/tables.h"
#include "ops/math.h"

namespace pando {
namespace {

// A block to a row: of GPT-2's 50304 columns it reads some hundred KB twice, the second time
// backwards and mostly from the second-level cache.
constexpr int kThreads = 512;
// Packs that a thread loads before it uses the first.
constexpr int kBatch = 2;

// The most negative finite number: a maximum to start from that is safe to subtract, even from
// logits that are all minus infinity.
constexpr float kLowest = -__FLT_MAX__;

PANDO_HOST_DEVICE inline bool Counts(int32_t target, int64_t vocab, int32_t ignore_index) {
  return target != ignore_index && target >= 0 && target < vocab;
}

// One row of the matrix of logits. Its first `packs` Packs lie whole within the vocabulary and are
// aligned; what is left goes element by element.
template <typename T>
struct LogitsRow {
  static constexpr int kW = kPackWidth<T>;
  using Elements = Pack<T, kW>;

  const T* x;
  int64_t vocab;
  int64_t stride;
  int64_t packs;

  __device__ Elements Read(int64_t pack) const {
    return *reinterpret_cast<const Elements*>(x + pack * kW);
  }
  // The first element of this thread's that is in no Pack.
  __device__ int64_t FirstSingle() const { return packs * kW + threadIdx.x; }
};

// sum = the sum of exp(x - max) over what has been seen.
struct RunningSum {
  float max = kLowest;
  float sum = 0;

  __device__ void RaiseTo(float new_max) {
    sum *= Exp(max - new_max);
    max = new_max;
  }
};

template <typename T>
__device__ void AddBatch(const Pack<T, kPackWidth<T>> (&batch)[kBatch], int n,
                         RunningSum* running) {
  float max = running->max;
  PANDO_UNROLL
  for (int u = 0; u < kBatch; ++u) {
    if (u >= n) break;
    // fmaxf passes NaN over, which the sum will not.
    for (int j = 0; j < kPackWidth<T>; ++j) max = fmaxf(max, ToFloat(batch[u].v[j]));
  }
  running->RaiseTo(max);
  PANDO_UNROLL
  for (int u = 0; u < kBatch; ++u) {
    if (u >= n) break;
    for (int j = 0; j < kPackWidth<T>; ++j) running->sum += Exp(ToFloat(batch[u].v[j]) - max);
  }
}

// log(sum over the vocabulary of exp(x)), in every thread of the block.
template <typename T>
__device__ float LogSumExp(const LogitsRow<T>& row) {
  RunningSum running;
  for (int64_t first = threadIdx.x; first < row.packs; first += kBatch * int64_t{blockDim.x}) {
    typename LogitsRow<T>::Elements batch[kBatch];
    int n = 0;
    PANDO_UNROLL
    for (int u = 0; u < kBatch; ++u) {
      const int64_t pack = first + u * int64_t{blockDim.x};
      if (pack < row.packs) {
        batch[u] = row.Read(pack);
        n = u + 1;
      }
    }
    AddBatch<T>(batch, n, &running);
  }
  for (int64_t c = row.FirstSingle(); c < row.vocab; c += blockDim.x) {
    const float v = ToFloat(row.x[c]);
    if (v > running.max) running.RaiseTo(v);
    running.sum += Exp(v - running.max);
  }
  const float max = BlockReduce(MaxOp(), running.max, SharedMemory<float>());
  running.RaiseTo(max);
  return max + Log(BlockReduce(SumOp(), running.sum, SharedMemory<float>()));
}

// dx = (exp(x - logsumexp) - (c == target)) * scale in the vocabulary, 0 in the rest of the row. dx
// may be row.x: each element is read and written by the same thread, but for that of the target,
// which the caller has read.
template <typename T>
__device__ void StoreGradient(const LogitsRow<T>& row, float logsumexp, int32_t target,
                              float at_target, float scale, T* dx) {
  constexpr int kW = LogitsRow<T>::kW;
  const T target_gradient = RoundTo<T>((Exp(at_target - logsumexp) - 1) * scale);
  for (int64_t first = threadIdx.x; first < row.packs; first += kBatch * int64_t{blockDim.x}) {
    typename LogitsRow<T>::Elements batch[kBatch];
    PANDO_UNROLL
    for (int u = 0; u < kBatch; ++u) {
      const int64_t behind = first + u * int64_t{blockDim.x};
      if (behind < row.packs) batch[u] = row.Read(row.packs - 1 - behind);
    }
    PANDO_UNROLL
    for (int u = 0; u < kBatch; ++u) {
      const int64_t behind = first + u * int64_t{blockDim.x};
      if (behind >= row.packs) break;
      const int64_t column = (row.packs - 1 - behind) * kW;
      for (int j = 0; j < kW; ++j) {
        batch[u].v[j] = RoundTo<T>(Exp(ToFloat(batch[u].v[j]) - logsumexp) * scale);
      }
      *reinterpret_cast<typename LogitsRow<T>::Elements*>(dx + column) = batch[u];
      if (target >= column && target < column + kW) dx[target] = target_gradient;
    }
  }
  for (int64_t c = row.FirstSingle(); c < row.stride; c += blockDim.x) {
    const float p = c < row.vocab ? Exp(ToFloat(row.x[c]) - logsumexp) * scale : 0.0f;
    dx[c] = c == target ? target_gradient : RoundTo<T>(p);
  }
}

template <typename T>
__device__ void StoreZeros(const LogitsRow<T>& row, T* dx) {
  const typename LogitsRow<T>::Elements zeros = {};
  for (int64_t i = threadIdx.x; i < row.packs; i += blockDim.x) {
    *reinterpret_cast<typename LogitsRow<T>::Elements*>(dx + i * LogitsRow<T>::kW) = zeros;
  }
  for (int64_t c = row.FirstSingle(); c < row.stride; c += blockDim.x) dx[c] = RoundTo<T>(0.0f);
}

// Whether the row counts; one thread sets the error flag if its target is neither in the vocabulary
// nor the one to ignore.
__device__ inline bool CheckTarget(int32_t target, int64_t vocab, int32_t ignore_index,
                                   int32_t* error) {
  const bool counts = Counts(target, vocab, ignore_index);
  if (!counts && target != ignore_index && threadIdx.x == 0) atomicOr(error, 1);
  return counts;
}

__device__ inline float ScaleFor(double scale, const float* factor) {
  return static_cast<float>(factor == nullptr ? scale : scale * static_cast<double>(*factor));
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    CrossEntropyForward(CrossEntropyForwardArgs args, int64_t packs) {
  for (int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
    const T* x = static_cast<const T*>(args.logits) + r * args.stride;
    const int32_t target = args.targets[r];
    const bool counts = CheckTarget(target, args.vocab, args.ignore_index, args.error);
    const float logsumexp = counts ? LogSumExp<T>({x, args.vocab, args.stride, packs}) : 0.0f;
    if (threadIdx.x != 0) continue;
    static_cast<float*>(args.losses)[r] = counts ? logsumexp - ToFloat(x[target]) : 0.0f;
    if (args.logsumexp != nullptr) static_cast<float*>(args.logsumexp)[r] = logsumexp;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    CrossEntropyBackward(CrossEntropyBackwardArgs args, int64_t packs) {
  const float scale = ScaleFor(args.scale, args.factor);
  for (int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
    const T* x = static_cast<const T*>(args.logits) + r * args.stride;
    T* dx = static_cast<T*>(args.dlogits) + r * args.stride;
    const LogitsRow<T> row = {x, args.vocab, args.stride, packs};
    const int32_t target = args.targets[r];
    if (Counts(target, args.vocab, args.ignore_index)) {
      const float at_target = ToFloat(x[target]);
      __syncthreads();  // read by all before it is overwritten
      StoreGradient(row, static_cast<const float*>(args.logsumexp)[r], target, at_target, scale,
                    dx);
    } else {
      StoreZeros(row, dx);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    CrossEntropyFused(CrossEntropyFusedArgs args, int64_t packs) {
  const float scale = ScaleFor(args.scale, args.factor);
  for (int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
    T* x = static_cast<T*>(args.logits) + r * args.stride;
    const LogitsRow<T> row = {x, args.vocab, args.stride, packs};
    const int32_t target = args.targets[r];
    float loss = 0;
    if (CheckTarget(target, args.vocab, args.ignore_index, args.error)) {
      const float at_target = ToFloat(x[target]);
      const float logsumexp = LogSumExp(row);  // with barriers, after which it is overwritten
      loss = logsumexp - at_target;
      StoreGradient(row, logsumexp, target, at_target, scale, x);
    } else {
      StoreZeros(row, x);
    }
    if (threadIdx.x == 0) static_cast<float*>(args.losses)[r] = loss;
  }
}

// Launches a kernel on the rows of args, with the number of Packs that are whole and aligned.
template <typename T, typename Args>
void LaunchOnRows(void (*kernel)(Args, int64_t), const Args& args, bool aligned, void* stream) {
  const bool wide = aligned && args.stride % kPackWidth<T> == 0;
  const int64_t packs = wide ? args.vocab / kPackWidth<T> : 0;
  const int64_t items = std::max<int64_t>(packs, args.stride - packs * kPackWidth<T>);
  const int64_t warps =
      std::min<int64_t>((items + kWarpSize - 1) / kWarpSize, kThreads / kWarpSize);
  Launch(kernel, GridFor(args.rows, 1), static_cast<unsigned>(warps * kWarpSize),
         kWarpSize * static_cast<int64_t>(sizeof(float)), stream, args, packs);
}

void Forward(const CrossEntropyForwardArgs& args, void* stream) {
  DispatchCuda<float, BFloat16, Float16>("cross_entropy", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    LaunchOnRows<T>(CrossEntropyForward<T>, args, IsWideAligned(args.logits), stream);
  });
}

void Backward(const CrossEntropyBackwardArgs& args, void* stream) {
  DispatchCuda<float, BFloat16, Float16>("cross_entropy backward", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    LaunchOnRows<T>(CrossEntropyBackward<T>, args,
                    IsWideAligned(args.logits) && IsWideAligned(args.dlogits), stream);
  });
}

void Fused(const CrossEntropyFusedArgs& args, void* stream) {
  DispatchCuda<float, BFloat16, Float16>("cross_entropy fused", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    LaunchOnRows<T>(CrossEntropyFused<T>, args, IsWideAligned(args.logits), stream);
  });
}

// One block: a thread adds every 1024th loss in order, then the threads' sums are added in order.
constexpr int kSumThreads = 1024;

template <typename C>
__global__ void __launch_bounds__(kSumThreads) SumLosses(LossSumArgs args) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t r = threadIdx.x; r < args.rows; r += blockDim.x) {
    if (!Counts(args.targets[r], args.vocab, args.ignore_index)) continue;
    sum += static_cast<const C*>(args.losses)[r];
    ++count;
  }
  sum = BlockReduce(SumOp(), sum, SharedMemory<double>());
  count = BlockReduce(SumOp(), count, SharedMemory<int64_t>());
  if (threadIdx.x != 0) return;
  *args.sum = args.accumulate ? *args.sum + sum : sum;
  *args.count = args.accumulate ? *args.count + count : count;
}

void LossSum(const LossSumArgs& args, void* stream) {
  DispatchCuda<float, double>("loss_sum", args.dtype, [&](auto tag) {
    Launch(SumLosses<decltype(tag)>, 1, kSumThreads,
           kWarpSize * static_cast<int64_t>(sizeof(double)), stream, args);
  });
}

}  // namespace

const CrossEntropyKernels kCudaCrossEntropy = {
    .forward = Forward, .backward = Backward, .fused = Fused, .loss_sum = LossSum};

}  // namespace pando
