#pragma once

#include <string>

#include "engine/device.h"
#include "engine/types.h"

namespace pando {

/// The device that `--device` chose.
struct ChosenDevice {
  Device* device = nullptr;
  int compute_capability = 0;  ///< 10 * major + minor; 0: the CPU
  std::string note;            ///< a line for people: which, and with auto why
};

/// `option` is auto (as cuda, or the CPU where there is no GPU that can be used), cpu, cuda (for
/// one of several ranks on this node each its own GPU as long as there are enough; else cuda:0) or
/// cuda:N. Throws InvalidArgument for anything else, and for a GPU that isn't there or is too
/// old.
ChosenDevice ChooseDevice(const std::string& option, int local_rank = 0);

/// A device that is slower than it is, to try a cluster of unlike ones on one machine.
struct EmulationOptions {
  double speed = 1;  ///< of the CPU's; 1: no emulation
  double jitter = 0;
};

/// The CPU, slowed as asked, computing on one thread; its kernels' jitter is drawn anew in each
/// process. Throws InvalidArgument for another device.
ChosenDevice Emulate(const ChosenDevice& chosen, const EmulationOptions& options);
/// One line for people, how honest emulation has been so far; empty without it.
std::string EmulationReport();

/// What `--precision` asks for: f32, tf32 (f32, with matrix products of TF32), bf16 or f16.
struct Precision {
  DType dtype = DType::kF32;
  bool tf32 = false;
};

/// Throws InvalidArgument where the device can't compute in it.
Precision ChoosePrecision(const std::string& option, const ChosenDevice& chosen);

}  // namespace pando
