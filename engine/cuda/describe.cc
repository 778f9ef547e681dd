#include "absl/strings/str_format.h"
#include "engine/cuda/cuda_device.h"

namespace pando {

std::string ToString(const CudaDescription& d) {
  return absl::StrFormat("%s, compute capability %d.%d, %d multiprocessors, %.1f GiB", d.name,
                         d.compute_capability / 10, d.compute_capability % 10, d.multiprocessors,
                         static_cast<double>(d.memory) / (1 << 30));
}

}  // namespace pando
