#include "tests/emulated_cuda/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/emulated_cuda/memory.h"

// The System V ABI for x86-64: these six and rsp are what a function must preserve. (Also the
// control words of x87 and SSE, which nothing here changes.)
asm(R"(
.text
.globl EmulatedCudaSwitch
.type EmulatedCudaSwitch, @function
EmulatedCudaSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size EmulatedCudaSwitch, .-EmulatedCudaSwitch
)");

namespace emulated_cuda {

void Stacks::Grow(size_t count) {
  while (stacks_.size() < count) {
    void* p = mmap(nullptr, kBytes + kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, kPage, PROT_NONE) != 0) {
      std::perror("emulated CUDA: a thread's stack");
      std::abort();
    }
    stacks_.push_back(static_cast<char*>(p));
  }
}

Context Stacks::Begin(size_t i, void (*entry)()) {
  // As EmulatedCudaSwitch left it: six registers and where to return to. Above them a word, so that
  // the stack is aligned as after a call.
  void* frame[8] = {};
  frame[6] = reinterpret_cast<void*>(entry);
  // Not all at the same place in a page: they would take each other's place in the cache.
  char* top = stacks_[i] + kPage + kBytes - sizeof(frame) - i % 64 * 64;
  std::memcpy(top, frame, sizeof(frame));
  return top;
}

bool Stacks::IsGuard(const void* address) const {
  const auto a = reinterpret_cast<uintptr_t>(address);
  return std::any_of(stacks_.begin(), stacks_.end(), [a](const char* s) {
    const auto begin = reinterpret_cast<uintptr_t>(s);
    return a >= begin && a < begin + kPage;
  });
}

}  // namespace emulated_cuda
