#pragma once

#include "engine/tensor.h"
#include "ops/kernels/matmul.h"

namespace pando {

/// One matrix product on row-major matrices that lie one behind the other in tensors.
struct Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  int64_t batch = 1;
  int64_t m = 0, n = 0, k = 0;
  /// Elements from one matrix of the batch to the next; 0: the same one for all.
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
};

/// c = op(a) op(b) (+ c) (+ bias), queued. c has the dtype of a and b, or f32. bias may be
/// undefined.
void RunGemm(const Gemm& gemm, const Tensor& a, const Tensor& b, Tensor& c,
             const Tensor& bias = Tensor());

/// What a product does besides (see MatmulFusion). Of c's dtype.
struct Fusion {
  MatmulFusion kind = MatmulFusion::kNone;
  Tensor aux = {};   ///< may be undefined for kGelu
  Tensor sums = {};  ///< for kSumsOfA and kSumsOfB
};

/// Whether products on the device fuse anything at all: to be asked before anything is prepared.
bool FusesProducts(const Device& device);

/// As RunGemm, with `fusion` besides, if the device can do that with these operands. Else nothing
/// happens, and it returns false. Batch 1.
bool RunFusedGemm(const Gemm& gemm, Fusion fusion, const Tensor& a, const Tensor& b, Tensor& c,
                  const Tensor& bias = Tensor());

}  // namespace pando
