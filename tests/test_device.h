#pragma once

#include "engine/device.h"

namespace pando {

/// The device that a test runs on which is built for several: the CPU with //tests:test_device_cpu,
/// cuda:0 with //tests/emulated_cuda:test_device_cuda.
Device& TestDevice();

}  // namespace pando
