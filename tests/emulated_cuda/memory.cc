#include "tests/emulated_cuda/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace emulated_cuda {
namespace {

constexpr size_t kReserved = size_t{4} << 40;  // addresses only
constexpr size_t kAlignment = 16;
constexpr size_t kPiece = size_t{4} << 20;
constexpr size_t kWatchedBefore = 64;  // bytes before an allocation that are watched for writes

size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

void* Pointer(uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void MustProtect(uintptr_t address, size_t bytes, int protection) {
  if (mprotect(Pointer(address), bytes, protection) != 0) {
    std::perror("emulated CUDA: mprotect");
    std::abort();
  }
}

/// Addresses that cannot be touched, at `at` if that is not null.
void* Reserve(void* at, size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at == nullptr ? 0 : MAP_FIXED);
  void* p = mmap(at, bytes, PROT_NONE, flags, -1, 0);
  if (p == MAP_FAILED) {
    std::perror("emulated CUDA: mmap");
    std::abort();
  }
  return p;
}

/// A file in memory of kPiece bytes, all kPoison.
int PoisonFile() {
  static const int file = [] {
    const int fd = memfd_create("poison", 0);
    const std::vector<unsigned char> poison(kPiece, kPoison);
    if (fd < 0 || write(fd, poison.data(), kPiece) != static_cast<ssize_t>(kPiece)) {
      std::perror("emulated CUDA: memfd_create");
      std::abort();
    }
    return fd;
  }();
  return file;
}

/// Opens whole pages, poisoned. Long ones are copies on write of PoisonFile: a workspace of many
/// megabytes, of which hardly any is used, would take longer to fill than all the rest.
void OpenPoisoned(uintptr_t at, size_t bytes) {
  for (; bytes >= kPiece; at += kPiece, bytes -= kPiece) {
    if (mmap(Pointer(at), kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, PoisonFile(),
             0) == MAP_FAILED) {
      std::perror("emulated CUDA: mmap");
      std::abort();
    }
  }
  if (bytes == 0) return;
  MustProtect(at, bytes, PROT_READ | PROT_WRITE);
  std::memset(Pointer(at), kPoison, bytes);
}

bool AllPoison(uintptr_t from, uintptr_t to) {
  const auto* begin = static_cast<const unsigned char*>(Pointer(from));
  return std::all_of(begin, begin + (to - from), [](unsigned char c) { return c == kPoison; });
}

}  // namespace

GuardedMemory::GuardedMemory(const char* what, bool closes)
    : what_(what), closes_(closes), open_(!closes) {
  begin_ = reinterpret_cast<uintptr_t>(Reserve(nullptr, kReserved));
  end_ = begin_ + kReserved;
  next_ = begin_ + kPage;
}

void* GuardedMemory::Allocate(size_t bytes) {
  const size_t used = RoundUp(std::max<size_t>(bytes, 1), kAlignment);
  const size_t mapped = RoundUp(used, kPage);
  if (mapped + kPage > end_ - next_) return nullptr;
  const Block block{.bytes = bytes, .page = next_, .mapped = mapped};
  next_ += mapped + kPage;
  OpenPoisoned(block.page, mapped);
  if (!open_) MustProtect(block.page, mapped, PROT_NONE);
  const uintptr_t first = block.page + mapped - used;
  live_[first] = block;
  live_bytes_ += bytes;
  return Pointer(first);
}

bool GuardedMemory::Free(void* pointer, std::string* damage) {
  const auto it = live_.find(reinterpret_cast<uintptr_t>(pointer));
  if (it == live_.end()) return false;
  const Block& block = it->second;
  MustProtect(block.page, block.mapped, PROT_READ | PROT_WRITE);
  *damage = TakeDamageOf(it->first, block);
  // A mapping anew, not only protected: the system's count of areas per process is limited, and
  // these it can merge.
  Reserve(Pointer(block.page), block.mapped);
  live_bytes_ -= block.bytes;
  freed_.insert(live_.extract(it));
  return true;
}

void GuardedMemory::Protect(int protection) {
  for (const auto& [at, block] : live_) MustProtect(block.page, block.mapped, protection);
}

void GuardedMemory::Open() {
  if (open_) return;
  open_ = true;
  Protect(PROT_READ | PROT_WRITE);
}

void GuardedMemory::Close() {
  if (!closes_ || !open_) return;
  open_ = false;
  Protect(PROT_NONE);
}

std::string GuardedMemory::TakeDamageOf(uintptr_t at, const Block& block) const {
  const uintptr_t before = std::max(block.page, at - kWatchedBefore);
  const uintptr_t end = at + block.bytes;
  const uintptr_t after = block.page + block.mapped;
  const char* where = !AllPoison(before, at) ? "before" : !AllPoison(end, after) ? "past" : nullptr;
  if (where == nullptr) return "";
  std::memset(Pointer(before), kPoison, at - before);
  std::memset(Pointer(end), kPoison, after - end);
  return std::string("something was written just ") + where + " a " + what_ + " of " +
         std::to_string(block.bytes) + " bytes";
}

std::string GuardedMemory::TakeDamage() const {
  for (const auto& [at, block] : live_) {
    std::string damage = TakeDamageOf(at, block);
    if (!damage.empty()) return damage;
  }
  return "";
}

bool GuardedMemory::Holds(const void* pointer, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto it = live_.upper_bound(address);
  if (it == live_.begin()) return false;
  --it;
  return address + bytes <= it->first + it->second.bytes;
}

bool GuardedMemory::InRange(const void* address) const {
  const auto a = reinterpret_cast<uintptr_t>(address);
  return a >= begin_ && a < end_;
}

void GuardedMemory::Describe(const void* address, char* text, size_t size) const {
  const auto a = reinterpret_cast<uintptr_t>(address);
  for (const bool live : {true, false}) {
    const char* freed = live ? "" : "freed ";
    for (const auto& [at, block] : live ? live_ : freed_) {
      if (a + kPage < block.page || a >= block.page + block.mapped + kPage) continue;
      const uintptr_t end = at + block.bytes;
      const size_t distance = a < at ? at - a : a < end ? a - at : a - end;
      const char* where = a < at    ? "bytes before"
                          : a < end ? "bytes into"
                                    : "bytes past the end of";
      std::snprintf(text, size, "%zu %s a %s%s of %zu bytes", distance, where, freed, what_,
                    block.bytes);
      return;
    }
  }
  std::snprintf(text, size, "far from any %s", what_);
}

}  // namespace emulated_cuda
