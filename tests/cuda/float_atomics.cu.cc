// What float_atomics_test must find: sums whose order, and so whose rounding, is left to chance.
#include <cuda_fp16.h>

namespace pando {

__global__ void GlobalF32(float* sum) { atomicAdd(sum, 1.0F); }
__global__ void GlobalF64(double* sum, double* old) { *old = atomicAdd(sum, 1.0); }
__global__ void GlobalF16(__half2* sum) { atomicAdd(sum, __half2()); }
__global__ void SharedF32(float* y) {
  __shared__ float sum;
  *y = atomicAdd(&sum, 1.0F);
}
/// Which is none.
__global__ void GlobalI32(int* sum) { atomicAdd(sum, 1); }

}  // namespace pando
