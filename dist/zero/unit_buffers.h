#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/communicator/communicator.h"
#include "engine/storage.h"
#include "engine/tensor.h"

namespace pando {

/// What is in memory or in flight of one unit of parameters.
struct UnitBuffers {
  std::vector<int64_t> counts;  ///< elements of the unit that each rank holds
  int64_t own_begin = 0;        ///< index in the unit of the first one that this rank holds
  int64_t own_count = 0;
  Tensor values;            ///< of the whole unit; at stage 3 its bytes are released outside of use
  Tensor grads;             ///< of the whole unit; from stage 2 on released outside of use
  bool grads_open = false;  ///< gradients of this micro-step are being summed up there
  bool reduced = false;     ///< the own gradients hold a sum of this step already
  std::unique_ptr<Work> gather;
  std::unique_ptr<Work> reduce;

  Tensor OwnValues() const { return values.Narrow(own_begin, own_count); }
  Tensor OwnGrads() const { return grads.Narrow(own_begin, own_count); }
};

}  // namespace pando
