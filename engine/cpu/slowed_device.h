#pragma once

#include <cstdint>
#include <memory>

#include "engine/device.h"

namespace pando {

struct SlowedOptions {
  /// Against this machine's: a kernel takes the processor's time that it used, divided by this.
  double speed = 1;
  /// Each kernel's time is stretched by a factor drawn between 1 - jitter and 1 + jitter.
  double jitter = 0;
  uint64_t seed = 1;
};

/// How honest a slowed device has been. In seconds.
struct SlowedStats {
  double emulated = 0;  ///< that kernels should have taken
  double used = 0;      ///< of the processor
  double overrun = 0;   ///< that they took longer, because the machine was busy
};

/// A CPU whose kernels take longer, by sleeping: so that a cluster of unlike machines can be tried
/// on one. What it computes is the CPU's. Kernels are to run on one thread (SetNumThreads(1)), as
/// others' time isn't seen. `stats`, unless null, is kept up to date and outlives the device.
/// Throws InvalidArgument for a speed outside (0, 1] or a jitter outside [0, 1).
std::unique_ptr<Device> NewSlowedDevice(const SlowedOptions& options, SlowedStats* stats = nullptr);

}  // namespace pando
