#include "engine/allocator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/error.h"

namespace pando {
namespace {

constexpr int64_t kAlignment = 512;
// Small blocks share segments; a large one gets a segment of its own size, so that little is
// reserved beyond what is used.
constexpr int64_t kSmallBlock = int64_t{1} << 20;
constexpr int64_t kSmallSegment = int64_t{4} << 20;
constexpr int64_t kLargeGranule = int64_t{2} << 20;
// The rest of a large block is split off only if it is worth having.
constexpr int64_t kSmallestLargeRest = int64_t{1} << 20;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

std::string InMiB(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

struct Allocator::Block {
  char* data = nullptr;
  int64_t size = 0;
  Stream* stream = nullptr;
  Segment* segment = nullptr;  // null: a direct block
  Block* previous = nullptr;   // neighbours in the segment
  Block* next = nullptr;
  bool free = false;
  bool small = false;
  std::string name;
  std::vector<Stream*> other_users;
  std::vector<std::unique_ptr<Event>> events;  // of other users, to be waited for before reuse
};

struct Allocator::Segment {
  char* data;
  int64_t size;
  Block* first;
};

bool Allocator::BySize::operator()(const Block* a, const Block* b) const {
  return a->size != b->size ? a->size < b->size : std::less<>()(a->data, b->data);
}

Allocator::Allocator(Device& device) : device_(device) {}

Allocator::~Allocator() {
  // Devices live as long as the process, so the system takes the memory back itself; only the
  // books are freed here.
  for (auto& segment : segments_) {
    for (Block* b = segment->first; b != nullptr;) {
      Block* next = b->next;
      delete b;
      b = next;
    }
  }
}

void* Allocator::Data(const Block* block) { return block->data; }

Allocator::FreeSet& Allocator::FreeSetOf(const Block& block) {
  return free_[{block.stream, block.small}];
}

Allocator::Block* Allocator::Allocate(int64_t bytes, Stream& stream, std::string_view name,
                                      std::string_view what) {
  const std::lock_guard<std::mutex> lock(mu_);
  Block* block = direct_ ? NewBlock(bytes, stream) : TakeOrMake(bytes, stream);
  if (block == nullptr) ThrowOutOfMemory(bytes, name, what);
  block->free = false;
  for (auto& event : block->events) stream.Wait(*event);
  block->events.clear();
  block->name = std::string(name);
  stats_.in_use += block->size;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  by_name_[block->name] += block->size;
  if (poison_) stream.SetBytes(block->data, 0xFF, block->size);
  return block;
}

Allocator::Block* Allocator::TakeOrMake(int64_t bytes, Stream& stream) {
  const int64_t size = std::max(RoundUp(bytes, kAlignment), kAlignment);
  Block* block = TakeFree(size, stream);
  if (block == nullptr) block = NewSegment(size, stream);
  if (block != nullptr) Split(block, size);
  return block;
}

Allocator::Block* Allocator::TakeFree(int64_t bytes, Stream& stream) {
  FreeSet& set = free_[{&stream, bytes <= kSmallBlock}];
  Block wanted;
  wanted.size = bytes;
  const auto it = set.lower_bound(&wanted);
  if (it == set.end()) return nullptr;
  Block* block = *it;
  set.erase(it);
  return block;
}

Allocator::Block* Allocator::NewSegment(int64_t bytes, Stream& stream) {
  const bool small = bytes <= kSmallBlock;
  const int64_t size = small ? kSmallSegment : RoundUp(bytes, kLargeGranule);
  Block* block = NewBlock(size, stream);
  if (block == nullptr) return nullptr;
  block->small = small;
  segments_.push_back(std::make_unique<Segment>(Segment{block->data, size, block}));
  block->segment = segments_.back().get();
  return block;
}

Allocator::Block* Allocator::NewBlock(int64_t bytes, Stream& stream) {
  const int64_t size = std::max<int64_t>(bytes, 1);
  char* data = TakeFromSystem(size);
  if (data == nullptr) return nullptr;
  auto* block = new Block;
  block->data = data;
  block->size = size;
  block->stream = &stream;
  return block;
}

/// Null past the budget, and when the system has no more even after what is cached was given back.
char* Allocator::TakeFromSystem(int64_t bytes) {
  if (stats_.budget == 0) stats_.budget = device_.TotalMemory();
  if (stats_.reserved + bytes > stats_.budget) ReleaseCachedLocked();
  if (stats_.reserved + bytes > stats_.budget) return nullptr;
  auto* data = static_cast<char*>(device_.AllocateFromSystem(bytes));
  if (data == nullptr) {
    ReleaseCachedLocked();
    data = static_cast<char*>(device_.AllocateFromSystem(bytes));
    if (data == nullptr) return nullptr;
  }
  ++stats_.system_allocations;
  stats_.reserved += bytes;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  return data;
}

void Allocator::Split(Block* block, int64_t bytes) {
  const int64_t rest = block->size - bytes;
  if (rest < (block->small ? kAlignment : kSmallestLargeRest)) return;
  auto* tail = new Block;
  tail->data = block->data + bytes;
  tail->size = rest;
  tail->stream = block->stream;
  tail->segment = block->segment;
  tail->small = block->small;
  tail->free = true;
  tail->previous = block;
  tail->next = block->next;
  if (tail->next != nullptr) tail->next->previous = tail;
  block->next = tail;
  block->size = bytes;
  // What other streams still do with the block they do with both parts: only whole blocks with no
  // such work are split without care, so wait now, on the stream that both belong to.
  for (auto& event : block->events) block->stream->Wait(*event);
  block->events.clear();
  FreeSetOf(*tail).insert(tail);
}

void Allocator::Free(Block* block) {
  const std::lock_guard<std::mutex> lock(mu_);
  stats_.in_use -= block->size;
  const auto named = by_name_.find(block->name);
  named->second -= block->size;
  if (named->second == 0) by_name_.erase(named);
  if (block->segment == nullptr) {
    FreeDirect(block);
    return;
  }
  for (Stream* user : block->other_users) {
    block->events.push_back(device_.NewEvent());
    user->Record(*block->events.back());
  }
  block->other_users.clear();
  block->free = true;
  block = MergeIntoNeighbours(block);
  FreeSetOf(*block).insert(block);
}

void Allocator::FreeDirect(Block* block) {
  const std::unique_ptr<Block> owned(block);
  try {
    device_.Synchronize();
  } catch (const DeviceError&) {
    // Blocks are freed in destructors. A device that failed says so again to the next who asks it;
    // its memory is left alone.
    return;
  }
  device_.FreeToSystem(block->data, block->size);
  stats_.reserved -= block->size;
}

Allocator::Block* Allocator::MergeIntoNeighbours(Block* block) {
  const auto absorb_next = [](Block* a) {
    Block* b = a->next;
    a->size += b->size;
    a->next = b->next;
    if (a->next != nullptr) a->next->previous = a;
    for (auto& event : b->events) a->events.push_back(std::move(event));
    delete b;
  };
  if (block->next != nullptr && block->next->free) {
    FreeSetOf(*block->next).erase(block->next);
    absorb_next(block);
  }
  if (block->previous != nullptr && block->previous->free) {
    Block* previous = block->previous;
    FreeSetOf(*previous).erase(previous);
    absorb_next(previous);
    return previous;
  }
  return block;
}

void Allocator::RecordUse(Block* block, Stream& stream) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (&stream == block->stream) return;
  auto& users = block->other_users;
  if (std::find(users.begin(), users.end(), &stream) == users.end()) users.push_back(&stream);
}

void Allocator::SetBudget(int64_t bytes) {
  Require(bytes > 0, "a memory budget of ", bytes, " bytes: give a positive one");
  const std::lock_guard<std::mutex> lock(mu_);
  stats_.budget = bytes;
  if (stats_.reserved > bytes) ReleaseCachedLocked();
}

void Allocator::SetDirect(bool on) {
  const std::lock_guard<std::mutex> lock(mu_);
  direct_ = on;
  if (on) ReleaseCachedLocked();
}

MemoryStats Allocator::stats() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return stats_;
}

void Allocator::ResetPeak() {
  const std::lock_guard<std::mutex> lock(mu_);
  stats_.peak_in_use = stats_.in_use;
  stats_.peak_reserved = stats_.reserved;
}

std::vector<std::pair<std::string, int64_t>> Allocator::InUseByName() const {
  const std::lock_guard<std::mutex> lock(mu_);
  std::vector<std::pair<std::string, int64_t>> names(by_name_.begin(), by_name_.end());
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return names;
}

void Allocator::ReleaseCached() {
  const std::lock_guard<std::mutex> lock(mu_);
  ReleaseCachedLocked();
}

void Allocator::ReleaseCachedLocked() {
  device_.Synchronize();
  std::vector<std::unique_ptr<Segment>> kept;
  for (auto& segment : segments_) {
    Block* block = segment->first;
    if (!block->free || block->next != nullptr) {
      kept.push_back(std::move(segment));
      continue;
    }
    FreeSetOf(*block).erase(block);
    device_.FreeToSystem(segment->data, segment->size);
    stats_.reserved -= segment->size;
    delete block;
  }
  segments_ = std::move(kept);
}

void Allocator::ThrowOutOfMemory(int64_t bytes, std::string_view name, std::string_view what) {
  throw OutOfMemory(absl::StrCat(
      device_.name(), ": no room for ", std::string(name), what.empty() ? "" : " ",
      std::string(what), " (", InMiB(bytes), "): ", InMiB(stats_.in_use), " in use of a budget of ",
      InMiB(stats_.budget), ", ", InMiB(std::max<int64_t>(0, stats_.budget - stats_.in_use)),
      " left; use a smaller micro-batch, --recompute, or a larger --memory-budget"));
}

}  // namespace pando
