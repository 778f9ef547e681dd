#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pando {

/// What a data sheet says of a GPU. Rates are FLOP/s of dense matrix products accumulated in f32;
/// bandwidths are bytes/s, links' of one direction.
struct GpuModel {
  const char* name;
  double memory;           ///< bytes
  double bandwidth;        ///< of that memory
  double half_flops;       ///< in bf16, or where there is none, in f16
  double tf32_flops;       ///< 0 where there is none
  double f32_flops;        ///< outside matrix units
  double link;             ///< to another GPU of the node
  int compute_capability;  ///< 10 * major + minor; bf16 from 80 on
  const char* source;
};

/// All that are known.
const std::vector<GpuModel>& GpuCatalogue();

/// InvalidArgument, listing the known ones, for another name. Case doesn't matter.
absl::StatusOr<const GpuModel*> FindGpu(const std::string& name);

}  // namespace pando
