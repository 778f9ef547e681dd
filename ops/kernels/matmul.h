#pragma once

// The table of matrix multiplication, the same for every device.

#include <cstdint>

#include "engine/kernel.h"
#include "engine/types.h"

namespace pando {

/// What a product does besides on its way out, where the table's `fuses` says that it can. Batch 1.
enum class MatmulFusion : int32_t {
  kNone,
  /// With s = op(A) op(B) + bias: C = Gelu(s) in the tanh form, and `aux` = s unless it is null.
  kGelu,
  /// C = op(A) op(B) * Gelu'(aux): the gradient before a GELU whose input `aux` was kept.
  kGeluGradient,
  /// sums[i] = sum of row i of op(A), written whatever `accumulate` says: of C = dY^T X, the
  /// gradient of a bias along with that of a weight.
  kSumsOfA,
  /// sums[j] = sum of column j of op(B), likewise.
  kSumsOfB,
};

/// For each b in [0, batch):
///
///   C[b] = op(A[b]) op(B[b]) + (accumulate ? C[b] : 0) + (bias ? bias repeated over rows : 0)
///
/// with op(A) m x k, op(B) k x n, C m x n, all row-major: element (i, j) of X[b] as stored is
/// x[b * stride_x + i * ldx + j], all in elements. transpose_a: A is stored k x m; transpose_b: B
/// is stored n x k. A leading dimension is at least the length of a stored row. stride_a or
/// stride_b = 0 repeats one matrix for the whole batch. C must overlap nothing.
///
/// A and B have `input_dtype`, C has `output_dtype`: equal, or output f32 with bf16 or f16 inputs
/// (so that weight gradients accumulate in f32). Products and sums are in f32 (f64 for f64),
/// rounded once at the end, also where C is bf16 and accumulates. Any size may be 0; with k = 0 the
/// product is 0, and with m, n or batch = 0 nothing is done.
struct MatmulArgs {
  const void* a;
  const void* b;
  void* c;
  const void* bias;  ///< [n] of input_dtype, or null
  DType input_dtype;
  DType output_dtype;
  bool transpose_a;
  bool transpose_b;
  bool accumulate;
  int64_t batch;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t lda;
  int64_t ldb;
  int64_t ldc;
  int64_t stride_a;
  int64_t stride_b;
  int64_t stride_c;
  void* scratch;          ///< aligned to 256 bytes; null if scratch_bytes(args) is 0
  int64_t scratch_bytes;  ///< at least what the table's scratch_bytes says
  MatmulFusion fusion = MatmulFusion::kNone;
  void* aux = nullptr;   ///< [m, n] of output_dtype, dense: read or written as `fusion` says
  void* sums = nullptr;  ///< [m] or [n] of output_dtype
};

/// Repeated calls with the same arguments give the same bits; another number of threads may not.
struct MatmulKernels {
  /// Throws InvalidArgument for dtypes that don't fit.
  Kernel<MatmulArgs> matmul;
  /// Bytes of scratch that `matmul` needs for these args; scratch and scratch_bytes are not looked
  /// at, and of the data pointers only whether bias is null.
  int64_t (*scratch_bytes)(const MatmulArgs& args);
  /// Whether `matmul` can do args.fusion with these args. Null where there are no fusions.
  bool (*fuses)(const MatmulArgs& args) = nullptr;
};

}  // namespace pando
