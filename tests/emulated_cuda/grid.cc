#include "tests/emulated_cuda/grid.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/emulated_cuda/emulated_cuda.h"
#include "tests/emulated_cuda/fiber.h"
#include "tests/emulated_cuda/memory.h"
#include "tests/emulated_cuda/symbol.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulated_cuda {
namespace {

constexpr unsigned kWarp = 32;
constexpr size_t kMostThreads = 1024;
constexpr size_t kMostExchanged = 256;  // bytes per lane
constexpr unsigned kNobody = ~0U;

/// Sebastiano Vigna's splitmix64: quick, and good enough to draw orders.
class Die {
 public:
  explicit Die(uint64_t seed) : state_(seed) {}
  unsigned Below(size_t n) {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<unsigned>((z >> 32) * n >> 32);
  }
  template <typename Container>
  void Shuffle(Container& c) {
    for (size_t i = c.size(); i > 1; --i) std::swap(c[i - 1], c[Below(i)]);
  }

 private:
  uint64_t state_;
};

enum class State : uint8_t { kRunnable, kAtWarpBarrier, kAtBlockBarrier, kDone };

struct Thread {
  Context context = nullptr;
  State state = State::kRunnable;
  const char* file = "";  // of the barrier it waits at
  int line = 0;
  unsigned exchanges = 0;

  bool WaitsWith(const Thread& other) const {
    if (state != other.state) return false;
    return state == State::kDone || (line == other.line && std::strcmp(file, other.file) == 0);
  }
  std::string Words() const {
    if (state == State::kDone) return "has ended";
    const char* barrier = state == State::kAtWarpBarrier ? "warp function" : "barrier";
    return std::string("waits at the ") + barrier + " of " + file + ":" + std::to_string(line);
  }
};

struct Warp {
  State state = State::kRunnable;  // of all its lanes, between turns
  alignas(16) std::array<char, size_t{2} * kWarp * kMostExchanged> exchange;
};

/// The threads of one block, which take turns. A warp's lanes run in a drawn order, each up to its
/// next barrier; then a warp is drawn among those that can go on.
class Block {
 public:
  void Prepare(const Grid& grid, uint64_t seed);
  /// Runs it as block `index`. Returns what was wrong, or nothing.
  std::string Run(uint3 index);
  void Finish();

  /// In a thread: leaves off until the others have come as far.
  void Wait(State state, const char* file, int line);
  /// In a thread: ends the block, in which something is wrong.
  void GiveUp(std::string error);
  void* Exchange(size_t bytes);

  Die& die() { return die_; }
  int64_t barriers() const { return barriers_; }
  void* shared() const { return shared_pointer_; }
  const Grid* grid() const { return grid_; }
  const Stacks& stacks() const { return stacks_; }
  const GuardedMemory& shared_memory() const { return shared_; }

 private:
  static void ThreadMain() noexcept;
  Thread* NextThread();
  bool SettleWarp();
  bool DrawWarp();
  bool SettleBlock();
  bool AllWaitTogether(const Thread* threads, unsigned count);

  const Grid* grid_ = nullptr;
  Die die_{0};
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Stacks stacks_;
  GuardedMemory shared_{"block's shared memory", false};
  void* shared_pointer_ = nullptr;
  Context main_ = nullptr;
  std::string error_;
  int64_t barriers_ = 0;                // passed since Prepare
  unsigned running_ = kNobody;          // thread
  unsigned warp_ = 0;                   // whose lanes have their turn
  std::array<uint8_t, kWarp> order_{};  // of its lanes
  unsigned turns_ = kWarp;              // of them that had it
  unsigned warp_turns_left_ = 0;        // before another warp is drawn
};

Block& TheBlock() {
  static Block* block = new Block;  // lives as long as the process
  return *block;
}

void Block::Prepare(const Grid& grid, uint64_t seed) {
  grid_ = &grid;
  barriers_ = 0;
  die_ = Die(seed);
  stacks_.Grow(grid.block);
  threads_.resize(grid.block);
  warps_.resize(grid.block / kWarp);
  std::iota(order_.begin(), order_.end(), uint8_t{0});
  shared_pointer_ = shared_.Allocate(grid.shared_bytes);
  blockDim = dim3(grid.block);
  gridDim = grid.grid;
}

void Block::Finish() {
  std::string damage;
  shared_.Free(shared_pointer_, &damage);
  grid_ = nullptr;
}

std::string Block::Run(uint3 index) {
  blockIdx = index;
  std::memset(shared_pointer_, kPoison, grid_->shared_bytes);
  for (size_t i = 0; i < threads_.size(); ++i) {
    threads_[i] = Thread{.context = stacks_.Begin(i, &Block::ThreadMain)};
  }
  for (Warp& w : warps_) w.state = State::kRunnable;
  error_.clear();
  running_ = kNobody;
  turns_ = kWarp;
  warp_turns_left_ = 0;
  EmulatedCudaSwitch(&main_, NextThread()->context);
  if (error_.empty()) error_ = shared_.TakeDamage();
  return error_;
}

void Block::ThreadMain() noexcept {
  TheBlock().grid()->thread();
  TheBlock().Wait(State::kDone, "", 0);
}

void Block::Wait(State state, const char* file, int line) {
  Thread& self = threads_[running_];
  self.state = state;
  self.file = file;
  self.line = line;
  Thread* next = NextThread();
  if (next != &self) EmulatedCudaSwitch(&self.context, next == nullptr ? main_ : next->context);
}

void Block::GiveUp(std::string error) {
  error_ = std::move(error);
  EmulatedCudaSwitch(&threads_[running_].context, main_);
}

/// Whose turn it is, made ready to run; null when the block is done or cannot go on.
Thread* Block::NextThread() {
  if (turns_ == kWarp && !((running_ == kNobody || SettleWarp()) && DrawWarp())) return nullptr;
  running_ = warp_ * kWarp + order_[turns_++];
  threadIdx.x = running_;
  return &threads_[running_];
}

/// After a turn of all lanes of a warp: where they wait. False, with an error, if not together.
bool Block::SettleWarp() {
  Thread* lanes = &threads_[size_t{warp_} * kWarp];
  if (!AllWaitTogether(lanes, kWarp)) return false;
  warps_[warp_].state = lanes->state;
  if (lanes->state == State::kAtWarpBarrier) {
    warps_[warp_].state = State::kRunnable;
    ++barriers_;
  }
  return true;
}

/// Draws the warp to go on. As with streams, one may get far ahead of another, and does not if
/// drawn anew each time. False when the block is done or cannot go on.
bool Block::DrawWarp() {
  turns_ = 0;
  if (warp_turns_left_ == 0 || warps_[warp_].state != State::kRunnable) {
    std::array<uint8_t, kMostThreads / kWarp> runnable;
    size_t count = 0;
    for (size_t w = 0; w < warps_.size(); ++w) {
      if (warps_[w].state == State::kRunnable) runnable[count++] = static_cast<uint8_t>(w);
    }
    if (count == 0) return SettleBlock() && DrawWarp();
    warp_ = runnable[die_.Below(count)];
    warp_turns_left_ = 1U << die_.Below(6);
  }
  --warp_turns_left_;
  die_.Shuffle(order_);
  return true;
}

/// When no warp can go on: lets all go on if they wait at one barrier. False if they are done or,
/// with an error, wait for each other.
bool Block::SettleBlock() {
  if (!AllWaitTogether(threads_.data(), grid_->block)) return false;
  if (threads_[0].state == State::kDone) return false;
  for (Warp& w : warps_) w.state = State::kRunnable;
  ++barriers_;
  return true;
}

bool Block::AllWaitTogether(const Thread* threads, unsigned count) {
  for (unsigned i = 1; i < count; ++i) {
    if (threads[i].WaitsWith(threads[0])) continue;
    const auto first = static_cast<unsigned>(threads - threads_.data());
    error_ = "thread " + std::to_string(first) + " " + threads[0].Words() + ", but thread " +
             std::to_string(first + i) + " " + threads[i].Words();
    return false;
  }
  return true;
}

void* Block::Exchange(size_t bytes) {
  if (bytes > kMostExchanged) GiveUp("a warp function passes more than 256 bytes per lane");
  // Two places in turn: lanes may still read one while others, a call ahead, fill the other.
  const size_t place = threads_[running_].exchanges++ % 2;
  return &warps_[warp_].exchange[place * kWarp * kMostExchanged];
}

std::string BlockWords(const Grid& grid) {
  char text[64];
  std::snprintf(text, sizeof(text), ", block (%u, %u, %u)", blockIdx.x, blockIdx.y, blockIdx.z);
  return "kernel " + FunctionName(grid.kernel) + text;
}

}  // namespace

std::string RunGrid(const Grid& grid, uint64_t seed, int64_t* barriers) {
  Block& block = TheBlock();
  block.Prepare(grid, seed);
  std::vector<uint32_t> order(static_cast<size_t>(grid.grid.x) * grid.grid.y * grid.grid.z);
  std::iota(order.begin(), order.end(), 0U);
  block.die().Shuffle(order);
  std::string error;
  for (const uint32_t i : order) {
    const uint32_t row = i / grid.grid.x;
    error = block.Run({i % grid.grid.x, row % grid.grid.y, row / grid.grid.y});
    if (error.empty()) continue;
    error.insert(0, BlockWords(grid) + ": ");
    break;
  }
  *barriers += block.barriers();
  block.Finish();
  return error;
}

std::string ThreadWords() {
  const Grid* grid = TheBlock().grid();
  return grid == nullptr ? "" : BlockWords(*grid) + ", thread " + std::to_string(threadIdx.x);
}

bool DescribeBlockAddress(const void* address, char* text, size_t size) {
  if (TheBlock().stacks().IsGuard(address)) {
    std::snprintf(text, size, "beyond the thread's stack of %zu bytes", Stacks::kBytes);
    return true;
  }
  if (!TheBlock().shared_memory().InRange(address)) return false;
  TheBlock().shared_memory().Describe(address, text, size);
  return true;
}

void* SharedMemory() { return TheBlock().shared(); }

void BlockBarrier(const char* file, int line) {
  TheBlock().Wait(State::kAtBlockBarrier, file, line);
}

void WarpBarrier(unsigned mask, const char* file, int line) {
  if (mask != 0xFFFFFFFFU) {
    TheBlock().GiveUp("a warp function without all lanes: mask " + std::to_string(mask) + ", " +
                      file + ":" + std::to_string(line));
  }
  TheBlock().Wait(State::kAtWarpBarrier, file, line);
}

void* WarpExchange(size_t bytes) { return TheBlock().Exchange(bytes); }

}  // namespace emulated_cuda
