#pragma once

// Memory between guard pages, poisoned, and closed while it should not be touched.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace emulated_cuda {

inline constexpr size_t kPage = 4096;
/// Every byte of memory that nobody has written: NaN in all floating types.
inline constexpr unsigned char kPoison = 0xFF;

/// Allocations in an address range of its own. Each ends, to within 16 bytes, at a page that cannot
/// be touched, as cannot the one before it and whatever was freed: addresses are never used again.
/// Not thread-safe.
class GuardedMemory {
 public:
  /// Reserves addresses; with `closes`, what is allocated can only be touched between Open and
  /// Close. `what` an allocation is, for messages: "device allocation".
  GuardedMemory(const char* what, bool closes);

  /// At least 16-byte aligned and filled with kPoison.
  void* Allocate(size_t bytes);
  /// False if `pointer` is not that of a live allocation. `damage`: as TakeDamage() of this
  /// one.
  bool Free(void* pointer, std::string* damage);
  void Open();
  void Close();

  /// What was written just outside an allocation, where no page could guard, and undoes it:
  /// empty if nothing. Memory must be open.
  std::string TakeDamage() const;
  /// Whether the bytes lie in one live allocation.
  bool Holds(const void* pointer, size_t bytes) const;
  /// Whether `address` lies in the range at all.
  bool InRange(const void* address) const;
  /// In words, where `address` lies: "4 bytes beyond the end of a device allocation of 64 bytes".
  /// For the handler of faults: allocates nothing.
  void Describe(const void* address, char* text, size_t size) const;
  size_t live_bytes() const { return live_bytes_; }

 private:
  struct Block {
    size_t bytes;
    uintptr_t page;  // of the first byte
    size_t mapped;   // bytes of whole pages
  };
  using Blocks = std::map<uintptr_t, Block>;  // by the first byte's address
  std::string TakeDamageOf(uintptr_t at, const Block& block) const;
  void Protect(int protection);

  const char* what_;
  bool closes_;
  bool open_ = true;
  uintptr_t begin_ = 0;
  uintptr_t end_ = 0;
  uintptr_t next_ = 0;
  size_t live_bytes_ = 0;
  Blocks live_;
  Blocks freed_;
};

}  // namespace emulated_cuda
