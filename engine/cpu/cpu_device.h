#pragma once

#include <cstdint>
#include <memory>

#include "engine/device.h"

namespace pando {

/// The CPU of this process: its streams run work at once, on the calling thread.
Device& CpuDevice();

/// A CPU for tests whose streams run nothing until somebody synchronises, and then in an order
/// drawn from `seed` among all its streams, as far as streams' own order and events allow. So a
/// missing wait shows without a GPU. Its allocator poisons what it hands out.
std::unique_ptr<Device> NewDeferredCpuDevice(uint64_t seed);

}  // namespace pando
