#pragma once

// Each op has a table of kernels per kind of device. A device's library (ops/cpu, ops/cuda)
// registers its tables before main; an op of one's own does the same with a KernelTables of its
// own.

#include "engine/device.h"
#include "engine/error.h"
#include "ops/kernels/attention.h"
#include "ops/kernels/binary.h"
#include "ops/kernels/column_sums.h"
#include "ops/kernels/copy.h"
#include "ops/kernels/cross_entropy.h"
#include "ops/kernels/dropout.h"
#include "ops/kernels/embedding.h"
#include "ops/kernels/gelu.h"
#include "ops/kernels/layer_norm.h"
#include "ops/kernels/matmul.h"
#include "ops/kernels/reduce.h"
#include "ops/kernels/softmax.h"
#include "ops/kernels/unary.h"
#include "ops/kernels/where.h"

namespace pando {

/// One op's kernels, by kind of device.
template <typename Table>
class KernelTables {
 public:
  constexpr explicit KernelTables(const char* op) : op_(op) {}

  /// Says that devices of `type` run `table`, which must live as long as the process.
  void Register(DeviceType type, const Table& table) { tables_[static_cast<int>(type)] = &table; }

  /// Throws InvalidArgument if the device has none.
  const Table& For(const Device& device) const {
    const Table* table = tables_[static_cast<int>(device.type())];
    Require(table != nullptr, op_, ": no kernels for device ", device.name(),
            " in this program (link //ops/cpu, or build with CUDA)");
    return *table;
  }

 private:
  const char* op_;
  const Table* tables_[kDeviceTypes] = {};
};

inline KernelTables<AttentionKernels> attention_kernels{"attention"};
inline KernelTables<BinaryKernels> binary_kernels{"binary"};
inline KernelTables<ColumnSumsKernels> column_sums_kernels{"column_sums"};
inline KernelTables<CopyKernels> copy_kernels{"copy"};
inline KernelTables<CrossEntropyKernels> cross_entropy_kernels{"cross_entropy"};
inline KernelTables<DropoutKernels> dropout_kernels{"dropout"};
inline KernelTables<EmbeddingKernels> embedding_kernels{"embedding"};
inline KernelTables<GeluKernels> gelu_kernels{"gelu"};
inline KernelTables<LayerNormKernels> layer_norm_kernels{"layer_norm"};
inline KernelTables<MatmulKernels> matmul_kernels{"matmul"};
inline KernelTables<ReduceKernels> reduce_kernels{"reduce"};
inline KernelTables<SoftmaxKernels> softmax_kernels{"softmax"};
inline KernelTables<UnaryKernels> unary_kernels{"unary"};
inline KernelTables<WhereKernels> where_kernels{"where"};

}  // namespace pando
