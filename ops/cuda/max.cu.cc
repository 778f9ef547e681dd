#include "ops/cuda/max.h"

#include "ops/cuda/pieces.h"

namespace pando {
namespace {

// A maximum so far and where it was met first; nothing yet: kNowhere.
template <typename C>
struct Best {
  C value;
  int64_t arg;
};

constexpr int64_t kNowhere = INT64_MAX;

// Whether a is to be taken rather than b: NaN before numbers, the greater, the first.
template <typename C>
__device__ inline bool Precedes(Best<C> a, Best<C> b) {
  const bool a_nan = a.value != a.value;
  const bool b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.value != b.value) return a.value > b.value;
  return a.arg < b.arg;
}

// How the threads of a block share out outputs and terms: `lanes` outputs at a time, `groups`
// threads for each.
struct MaxPlan {
  Box<1> kept;
  Box<1> over;
  int64_t outputs;
  int64_t reduced;
  int lanes;
  int groups;
  bool across;  // neighbouring threads have neighbouring outputs, not terms
};

template <typename T>
__global__ void __launch_bounds__(kPieceThreads)
    MaxForward(T* y, int64_t* arg, const T* x, MaxPlan plan) {
  using C = ComputeType<T>;
  auto* shared = SharedMemory<Best<C>>();  // [lanes][groups]
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = plan.across ? thread % plan.lanes : thread / plan.groups;
  const int group = plan.across ? thread / plan.lanes : thread % plan.groups;
  Best<C>* column = shared + lane * plan.groups;
  for (int64_t block = blockIdx.x; block * plan.lanes < plan.outputs; block += gridDim.x) {
    const int64_t output = block * plan.lanes + lane;
    const bool used = output < plan.outputs;
    Best<C> best = {static_cast<C>(-__builtin_inf()), kNowhere};
    if (used) {
      int64_t kept[1] = {0};
      AddOffsets(plan.kept, output, kept);
      for (int64_t r = group; r < plan.reduced; r += plan.groups) {
        int64_t at[1] = {kept[0]};
        AddOffsets(plan.over, r, at);
        const Best<C> here = {ToFloat(x[at[0]]), r};
        if (Precedes(here, best)) best = here;
      }
    }
    column[group] = best;
    __syncthreads();
    for (int half = plan.groups / 2; half > 0; half /= 2) {
      if (group < half && Precedes(column[group + half], column[group])) {
        column[group] = column[group + half];
      }
      __syncthreads();
    }
    if (used && group == 0) {
      y[output] = RoundTo<T>(column[0].value);
      if (arg != nullptr) arg[output] = column[0].arg == kNowhere ? 0 : column[0].arg;
    }
    __syncthreads();
  }
}

MaxPlan PlanOf(const ReduceIndex<1>& index) {
  constexpr int kThreads = static_cast<int>(kPieceThreads);
  MaxPlan plan = {MakeBox(index.kept),
                  MakeBox(index.reduced),
                  Count(index.kept),
                  Count(index.reduced),
                  kThreads,
                  1,
                  AcrossRows(index)};
  // 4 terms for a thread, but 32 neighbours across and a warp along as long as there are so many.
  const int most = plan.across ? kThreads / kWarpSize : kThreads;
  while (plan.groups < most && Wide(plan.groups * 4) <= plan.reduced) plan.groups *= 2;
  plan.lanes = kThreads / plan.groups;
  return plan;
}

template <typename X, typename T>
__global__ void MaxBackward(X* dx, const T* dy, const int64_t* arg, Box<1> kept, Box<1> reduced,
                            int64_t outputs) {
  for (int64_t i = GridThread(); i < outputs; i += GridThreads()) {
    int64_t at[1] = {0};
    AddOffsets(kept, i, at);
    AddOffsets(reduced, arg[i], at);
    dx[at[0]] = RoundTo<X>(ToFloat(dx[at[0]]) + ComputeType<X>{ToFloat(dy[i])});
  }
}

}  // namespace

void CudaMax(const MaxArgs& args, void* stream) {
  const MaxPlan plan = PlanOf(args.index);
  DispatchFloating("max", args.dtype, [&](auto tag) {
    using T = decltype(tag);
    Launch(MaxForward<T>, GridFor(plan.outputs, plan.lanes), kPieceThreads,
           kPieceThreads * sizeof(Best<ComputeType<T>>), stream, static_cast<T*>(args.y), args.arg,
           static_cast<const T*>(args.x), plan);
  });
}

void CudaMaxBackward(const MaxBackwardArgs& args, void* stream) {
  const int64_t outputs = Count(args.index.kept);
  DispatchGradient("max backward", args.dx_dtype, args.dtype, [&](auto x_tag, auto y_tag) {
    using X = decltype(x_tag);
    using T = decltype(y_tag);
    Launch(MaxBackward<X, T>, GridFor(outputs, kPieceThreads), kPieceThreads, 0, stream,
           static_cast<X*>(args.dx), static_cast<const T*>(args.dy), args.arg,
           MakeBox(args.index.kept), MakeBox(args.index.reduced), outputs);
  });
}

}  // namespace pando
