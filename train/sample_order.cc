#include "train/sample_order.h"

#include <algorithm>
#include <cmath>

#include "engine/error.h"
#include "engine/random.h"

namespace pando {
namespace {

// Four rounds suffice where the halves are large; halves of 2 or 3 values mix slowly, and with 24
// rounds all orders of five or six windows are equally likely. Costs about 2 us a sample.
constexpr int kRounds = 24;
constexpr uint32_t kOrderSite = HashName("data.order");
constexpr uint32_t kOffsetSite = HashName("data.offset");

uint64_t Bits64(const RandomKey& key, uint64_t sample, uint64_t element) {
  const Philox4 block = RandomBlock(key, sample, element);
  return static_cast<uint64_t>(block.v[1]) << 32 | block.v[0];
}

uint64_t CeilSqrt(uint64_t n) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root >= n && root > 1) --root;
  while (root * root < n) ++root;
  return root;
}

int64_t CheckedWindows(int64_t tokens, int64_t context) {
  Require(context >= 1 && tokens > context, "data: a context of ", context, " needs ", context + 1,
          " tokens, and there are ", tokens);
  return std::max<int64_t>(1, (tokens - context) / context);
}

}  // namespace

Permutation::Permutation(uint64_t seed, int64_t size)
    : seed_(seed),
      size_(static_cast<uint64_t>(size)),
      left_(CeilSqrt(size_)),
      right_((size_ + left_ - 1) / left_) {}

uint64_t Permutation::Round(uint64_t stream, int round, uint64_t half) const {
  const RandomKey key{.seed = seed_, .site = kOrderSite, .step = static_cast<uint32_t>(round)};
  return Bits64(key, stream, half * 4);  // a block of its own for every value of the half
}

int64_t Permutation::At(uint64_t stream, int64_t i) const {
  auto x = static_cast<uint64_t>(i);
  do {
    uint64_t l = x / right_, r = x % right_;
    for (int round = 0; round < kRounds; round += 2) {
      l = (l + Round(stream, round, r) % left_) % left_;
      r = (r + Round(stream, round + 1, l) % right_) % right_;
    }
    x = l * right_ + r;
  } while (x >= size_);
  return static_cast<int64_t>(x);
}

TrainingOrder::TrainingOrder(uint64_t seed, int64_t tokens, int64_t context)
    : seed_(seed),
      context_(context),
      windows_(CheckedWindows(tokens, context)),
      offsets_(std::min(context, tokens - windows_ * context)),
      permutation_(seed, windows_) {}

SampleWindow TrainingOrder::At(int64_t sample) const {
  const auto epoch = static_cast<uint64_t>(sample / windows_);
  const RandomKey key{.seed = seed_, .site = kOffsetSite, .step = 0};
  const auto offset = static_cast<int64_t>(Bits64(key, epoch, 0) % static_cast<uint64_t>(offsets_));
  return {offset + permutation_.At(epoch, sample % windows_) * context_, context_};
}

ValidationOrder::ValidationOrder(int64_t tokens, int64_t context, int64_t most_windows)
    : targets_(std::max<int64_t>(0, tokens - 1)), context_(context) {
  Require(context >= 1, "data: a context of ", context, " is no context");
  windows_ = targets_ / context + (targets_ % context != 0 ? 1 : 0);
  if (most_windows > 0) windows_ = std::min(windows_, most_windows);
}

SampleWindow ValidationOrder::At(int64_t sample) const {
  if (sample >= windows_) return {0, 0};
  const int64_t start = sample * context_;
  return {start, std::min(context_, targets_ - start)};
}

}  // namespace pando
