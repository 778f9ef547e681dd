#pragma once

// Runs grids: a block after another, its threads as fibers that leave off at barriers.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace emulated_cuda {

/// One launch of a kernel.
struct Grid {
  const void* kernel;
  dim3 grid;
  unsigned block;
  size_t shared_bytes;
  std::function<void()> thread;  ///< what each thread runs
};

/// Runs all blocks, in an order drawn from `seed`, as is that of the warps and lanes of a block.
/// Adds to `barriers` what warps and blocks passed. Returns what was wrong, or nothing.
std::string RunGrid(const Grid& grid, uint64_t seed, int64_t* barriers);

/// In words, the thread that runs: "kernel k, block (1, 0, 0), thread 5". Empty outside kernels.
std::string ThreadWords();
/// In words, what `address` has to do with shared memory and stacks; false if nothing.
bool DescribeBlockAddress(const void* address, char* text, size_t size);

}  // namespace emulated_cuda
