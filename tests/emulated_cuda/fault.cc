// What a refused access to memory ends in: a line that says who touched what.
#include <signal.h>

#include <cstdio>
#include <mutex>
#include <string>

#include "tests/emulated_cuda/grid.h"
#include "tests/emulated_cuda/machine.h"

namespace emulated_cuda {
namespace {

struct sigaction previous_fault, previous_illegal;

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
void Say(const char* otherwise, const void* address, const char* what) {
  std::string who = ThreadWords();
  if (who.empty()) who = otherwise;
  std::fprintf(stderr, "emulated CUDA: %s: %p, %s\n", who.c_str(), address, what);
}

void HandleFault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  char where[256] = "invalid address";
  const char* work = TheMachine().running;
  if (DescribeAddress(info->si_addr, where, sizeof(where)) || work != nullptr) {
    Say(work == nullptr ? "host code touched device memory" : work, info->si_addr, where);
  }
  // The access is tried again and meets whoever was there before.
  sigaction(SIGSEGV, &previous_fault, nullptr);
}

/// Kernels are compiled so that this is what an unaligned access ends in.
void HandleIllegal(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const char* work = TheMachine().running;
  if (work != nullptr) Say(work, info->si_addr, "an access there is not aligned as its type");
  sigaction(SIGILL, &previous_illegal, nullptr);
}

void Install(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction* previous) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(signal, &action, previous);
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
  static std::once_flag once;
  std::call_once(once, [] {
    Install(SIGSEGV, HandleFault, &previous_fault);
    Install(SIGILL, HandleIllegal, &previous_illegal);
  });
}

}  // namespace emulated_cuda
