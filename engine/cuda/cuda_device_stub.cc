// For builds without CUDA: there is no GPU.
#include "engine/cuda/cuda_device.h"
#include "engine/error.h"

namespace pando {

int CudaDeviceCount() { return 0; }

std::string WhyNoCuda() { return "this program was built without CUDA"; }

Device& CudaDevice(int index) {
  throw InvalidArgument(absl::StrCat("cuda:", index, ": ", WhyNoCuda()));
}

CudaDescription DescribeCudaDevice(int index) {
  throw InvalidArgument(absl::StrCat("cuda:", index, ": ", WhyNoCuda()));
}

}  // namespace pando
