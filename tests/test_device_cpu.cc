#include "engine/cpu/cpu_device.h"
#include "tests/test_device.h"

namespace pando {
Device& TestDevice() { return CpuDevice(); }
}  // namespace pando
