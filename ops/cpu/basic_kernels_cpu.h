#pragma once

#include "ops/kernels/binary.h"
#include "ops/kernels/copy.h"
#include "ops/kernels/reduce.h"
#include "ops/kernels/unary.h"
#include "ops/kernels/where.h"

namespace pando {

// The CPU's tables, for this processor's instruction set.
const BinaryKernels& CpuBinaryKernels();
const CopyKernels& CpuCopyKernels();
const ReduceKernels& CpuReduceKernels();
const UnaryKernels& CpuUnaryKernels();
const WhereKernels& CpuWhereKernels();

}  // namespace pando
