#pragma once

// Threads of execution that take turns on one thread of the system: a switch is a dozen
// instructions.

#include <cstddef>
#include <vector>

namespace emulated_cuda {

/// Where an execution that was left goes on: its stack pointer.
using Context = void*;

/// Leaves the running execution, noted in `*from`, and goes on with `to`.
extern "C" void EmulatedCudaSwitch(Context* from, Context to);

/// Stacks of equal size, each with a guard page at its end.
class Stacks {
 public:
  static constexpr size_t kBytes = size_t{64} << 10;

  /// Has at least `count` stacks.
  void Grow(size_t count);
  /// A context that begins `entry`, which must never return, on stack `i`. Whatever ran there is
  /// forgotten.
  Context Begin(size_t i, void (*entry)());
  /// Whether `address` lies in a guard page.
  bool IsGuard(const void* address) const;

 private:
  std::vector<char*> stacks_;
};

}  // namespace emulated_cuda
