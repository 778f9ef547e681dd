#include "ops/cuda/matmul_bias.h"

#include "engine/cuda/block.h"
#include "engine/cuda/dispatch.h"
#include "engine/cuda/launch.h"

namespace pando {
namespace {

constexpr int kThreads = 256;

template <typename In, typename Out>
__global__ void AddBias(Out* c, const In* bias, bool keep, int64_t batch, int64_t m, int64_t n,
                        int64_t ldc, int64_t stride_c) {
  using C = ComputeType<Out>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < batch * m * n;
       i += step) {
    const int64_t row = i / n, col = i % n;
    Out& place = c[row / m * stride_c + row % m * ldc + col];
    const C before = keep ? C(ToFloat(place)) : C(0);
    const C added = bias != nullptr ? C(ToFloat(bias[col])) : C(0);
    place = RoundTo<Out>(before + added);
  }
}

template <typename In, typename Out>
void LaunchFor(const MatmulArgs& args, bool keep, void* stream) {
  Launch(AddBias<In, Out>, dim3(GridFor(args.batch * args.m * args.n, kThreads)), kThreads, 0,
         stream, static_cast<Out*>(args.c), static_cast<const In*>(args.bias), keep, args.batch,
         args.m, args.n, args.ldc, args.stride_c);
}

}  // namespace

void CudaAddBias(const MatmulArgs& args, bool keep, void* native_stream) {
  DispatchCuda<float, BFloat16, Float16, double>("matmul", args.input_dtype, [&](auto in) {
    using In = decltype(in);
    if (args.output_dtype == args.input_dtype) {
      LaunchFor<In, In>(args, keep, native_stream);
    } else {
      LaunchFor<In, float>(args, keep, native_stream);
    }
  });
}

}  // namespace pando
