#include "ops/cuda/column_partials.h"

namespace pando {
namespace {

constexpr int kWarps = 16;

struct Targets {
  float* out[2];
};

// A block to 32 columns; its warps take the partials in turn, and their sums are added in order.
__global__ void __launch_bounds__(kWarps* kWarpSize)
    AddPartialsKernel(const float* partials, int64_t count, int64_t stride, int64_t cols,
                      bool accumulate, Targets targets) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarpSize + lane;
  const bool second = c >= cols;
  float* out = second ? targets.out[1] : targets.out[0];
  const bool wanted = c < 2 * cols && out != nullptr;
  float sum = 0;
  if (wanted) {
    for (int64_t k = warp; k < count; k += kWarps) sum += partials[k * stride + c];
  }
  float* shared = SharedMemory<float>();
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || !wanted) return;
  float* target = out + (second ? c - cols : c);
  float total = accumulate ? *target : 0.0f;
  for (int w = 0; w < kWarps; ++w) total += shared[w * kWarpSize + lane];
  *target = total;
}

}  // namespace

void AddPartials(const float* partials, int64_t count, int64_t stride, int64_t cols,
                 bool accumulate, float* first, float* second, void* stream) {
  if (first == nullptr && second == nullptr) return;
  const int64_t columns = second == nullptr ? cols : 2 * cols;
  const auto blocks = static_cast<unsigned>((columns + kWarpSize - 1) / kWarpSize);
  constexpr int kThreads = kWarps * kWarpSize;
  Launch(AddPartialsKernel, blocks, kThreads, kThreads * static_cast<int64_t>(sizeof(float)),
         stream, partials, count, stride, cols, accumulate, Targets{{first, second}});
}

}  // namespace pando
