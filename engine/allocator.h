#pragma once

// The caching allocator: blocks of memory are kept for reuse, so that after the first steps of a
// training run nothing is asked of the system any more. Stream-ordered: a freed block may be handed
// out again at once to work on the stream that it was allocated for, because that work runs later.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device.h"

namespace pando {

/// What an allocator counts, in bytes but for the last.
struct MemoryStats {
  int64_t in_use = 0;              ///< handed out now
  int64_t peak_in_use = 0;         ///< most handed out at once since the last ResetPeak
  int64_t reserved = 0;            ///< held from the system, in use or kept for reuse
  int64_t peak_reserved = 0;       ///< most held since the last ResetPeak
  int64_t budget = 0;              ///< most that may be reserved
  int64_t system_allocations = 0;  ///< times that the system was asked
};

/// A caching allocator with a budget. Thread-safe.
class Allocator {
 public:
  struct Block;

  explicit Allocator(Device& device);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// At least `bytes` (may be 0) of memory, aligned to 512, for work on `stream`. `name` and
  /// `what` (a shape, say) are for statistics and the error. Throws OutOfMemory, naming both and
  /// what is left, past the budget or when the system has no more.
  Block* Allocate(int64_t bytes, Stream& stream, std::string_view name, std::string_view what);
  /// Gives a block back, without waiting for the work that uses it.
  void Free(Block* block);
  /// Says that `stream`, not the one it was allocated for, uses the block too: it will not be
  /// handed out again before what `stream` has been given until Free is done.
  void RecordUse(Block* block, Stream& stream);

  static void* Data(const Block* block);

  /// The most that may be reserved from the system; at first the device's whole memory. Cached
  /// blocks are given back to the system if that is needed to respect it.
  void SetBudget(int64_t bytes);
  /// Fills every block with 0xFF (NaN in all floating types) when it is handed out, for tests.
  void SetPoison(bool on) { poison_ = on; }
  /// From here on every block is memory of its own from the system, of exactly the bytes asked for,
  /// and goes back when it is freed, the device having been synchronised: so that guard pages and
  /// memory checkers see each step beyond a tensor and each use after its end. Slow; for tests.
  void SetDirect(bool on);

  MemoryStats stats() const;
  void ResetPeak();
  /// Bytes in use by name, largest first.
  std::vector<std::pair<std::string, int64_t>> InUseByName() const;
  /// Gives all cached blocks back to the system, after synchronising the device.
  void ReleaseCached();

 private:
  struct Segment;
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  using FreeSet = std::set<Block*, BySize>;

  Block* TakeFree(int64_t bytes, Stream& stream);
  Block* NewSegment(int64_t bytes, Stream& stream);
  Block* NewBlock(int64_t bytes, Stream& stream);
  void FreeDirect(Block* block);
  char* TakeFromSystem(int64_t bytes);
  Block* TakeOrMake(int64_t bytes, Stream& stream);
  void ReleaseCachedLocked();
  void Split(Block* block, int64_t bytes);
  Block* MergeIntoNeighbours(Block* block);
  FreeSet& FreeSetOf(const Block& block);
  [[noreturn]] void ThrowOutOfMemory(int64_t bytes, std::string_view name, std::string_view what);

  Device& device_;
  mutable std::mutex mu_;
  std::map<std::pair<Stream*, bool>, FreeSet> free_;  // by (stream, small)
  std::vector<std::unique_ptr<Segment>> segments_;
  std::map<std::string, int64_t, std::less<>> by_name_;
  MemoryStats stats_;
  bool poison_ = false;
  bool direct_ = false;
};

}  // namespace pando
