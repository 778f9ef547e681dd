// What a refused access to memory ends in: a line that says who touched what.
#include <signal.h>

#include <cstdio>
#include <string>

#include "tests/emulated_cuda/grid.h"
#include "tests/emulated_cuda/machine.h"

namespace emulated_cuda {
namespace {

struct sigaction previous;

/// What `address` has to do with the emulation; false if nothing.
bool DescribeAddress(const void* address, char* text, size_t size) {
  if (DescribeBlockAddress(address, text, size)) return true;
  const Machine& m = TheMachine();
  for (const auto& memory : m.memories) {
    if (!memory->InRange(address)) continue;
    memory->Describe(address, text, size);
    return true;
  }
  if (!m.pinned.InRange(address)) return false;
  m.pinned.Describe(address, text, size);
  return true;
}

// Whoever ran was in code of a kernel, a copy or a test, not in the C library: so this may call it.
void HandleFault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  char where[256] = "invalid address";
  const char* work = TheMachine().running;
  if (DescribeAddress(info->si_addr, where, sizeof(where)) || work != nullptr) {
    std::string who = ThreadWords();
    if (who.empty()) who = work == nullptr ? "host code touched device memory" : work;
    std::fprintf(stderr, "emulated CUDA: %s: %p, %s\n", who.c_str(), info->si_addr, where);
  }
  // The access is tried again and meets whoever was there before.
  sigaction(SIGSEGV, &previous, nullptr);
}

}  // namespace

void WatchForFaults() {
  // A stack of its own: the thread's may be what overflowed.
  static thread_local char stack[64 << 10];
  static thread_local bool done = false;
  if (done) return;
  done = true;
  stack_t alternative = {};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof(stack);
  sigaltstack(&alternative, nullptr);
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = HandleFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return sigaction(SIGSEGV, &action, &previous) == 0;
  }();
  (void)installed;
}

}  // namespace emulated_cuda
