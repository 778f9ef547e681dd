#pragma once

#include <cstdint>

#include "engine/kernel.h"
#include "engine/random.h"
#include "engine/types.h"

namespace pando {

/// y = x / (1 - p) where an element is kept, 0 where it is dropped, plus residual unless that is
/// null. Element e of sample s (its position in the sample's slab) is dropped iff
/// RandomBits(key, sample_ids[s], e) < DropThreshold(p): the mask is never stored, and backward is
/// the same kernel on dy without a residual. It depends on the sample's global number, not on
/// where in which batch the sample is computed.
struct DropoutArgs {
  const void* x;              ///< [samples, elements]
  const void* residual;       ///< [samples, elements], or null
  void* y;                    ///< [samples, elements]; may be x or residual
  const int64_t* sample_ids;  ///< [samples], in device memory
  DType dtype;                ///< floating
  int64_t samples;
  int64_t elements;
  double p;  ///< in [0, 1]
  RandomKey key;
};

struct DropoutKernels {
  Kernel<DropoutArgs> run;
};

}  // namespace pando
