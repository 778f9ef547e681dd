#pragma once

#include <cstdint>
#include <memory>

#include "engine/device.h"

namespace pando {

/// The CPU of this process: its streams run work at once, on the calling thread.
Device& CpuDevice();

/// A CPU for tests whose streams run nothing until somebody synchronises, and then in an order
/// drawn from `seed` among all its streams, as far as streams' own order and events allow. So a
/// missing wait shows without a GPU. Its allocator poisons what it hands out. `dropped_wait` leaves
/// out one of the waits of streams for events that were recorded, counted from 0, so that a test
/// can see that the wait is missed.
std::unique_ptr<Device> NewDeferredCpuDevice(uint64_t seed, int64_t dropped_wait = -1);

}  // namespace pando
