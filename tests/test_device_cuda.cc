#include "engine/allocator.h"
#include "engine/cuda/cuda_device.h"
#include "tests/test_device.h"

namespace pando {

Device& TestDevice() {
  Device& device = CudaDevice(0);
  static const bool once = [&device] {
    device.allocator().SetDirect(true);  // every overrun shows
    return true;
  }();
  (void)once;
  return device;
}

}  // namespace pando
