#pragma once

#include <cstdint>

namespace pando {

/// A sample: `targets` tokens from `start` on, each with its successor as the target.
struct SampleWindow {
  int64_t start = 0;
  int64_t targets = 0;  ///< at most the context; 0: nothing but padding
};

/// Which window of the data is global sample i. A pure function, so that there is no position to
/// save and no way for ranks to differ: sample i of step t is number t * global_batch + i, whatever
/// the split over ranks and micro-batches.
class SampleOrder {
 public:
  virtual ~SampleOrder() = default;

  /// The window of global sample `sample` >= 0.
  virtual SampleWindow At(int64_t sample) const = 0;

  /// Targets in a full window, T.
  virtual int64_t context() const = 0;
};

/// A pseudo-random permutation of [0, size) at any index in O(1): a Feistel network over the
/// mixed radix a * b >= size with Philox as the round function, walked along its cycle while the
/// result lies outside (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002,
/// generalized Feistel and cycle walking). a * b - size < a, so one walk in sqrt(size) goes on.
class Permutation {
 public:
  /// `stream` chooses one of many permutations under one seed. `size` >= 1.
  Permutation(uint64_t seed, int64_t size);

  /// Where index `i` of [0, size) goes in permutation number `stream` (below 2^52).
  int64_t At(uint64_t stream, int64_t i) const;

 private:
  uint64_t Round(uint64_t stream, int round, uint64_t half) const;

  uint64_t seed_;
  uint64_t size_;
  uint64_t left_, right_;  // the radix: index = l * right_ + r
};

/// The order of training. In each epoch the `tokens` tokens are cut into windows of `context`
/// without overlap, from an offset in [0, context) drawn for the epoch; every window is visited
/// once, in an order drawn for the epoch. All epochs have the same number of windows, the largest
/// that fits every offset: floor((tokens - context) / context), at least 1. (If the data is shorter
/// than two windows, the offset is drawn from what fits.)
class TrainingOrder final : public SampleOrder {
 public:
  /// Throws InvalidArgument unless tokens > context >= 1.
  TrainingOrder(uint64_t seed, int64_t tokens, int64_t context);

  SampleWindow At(int64_t sample) const override;
  int64_t context() const override { return context_; }

  /// Samples in an epoch.
  int64_t windows() const { return windows_; }

 private:
  uint64_t seed_;
  int64_t context_;
  int64_t windows_;
  int64_t offsets_;  // choices of the epoch's offset
  Permutation permutation_;
};

/// The order of evaluation: windows one after the other, so that each of the tokens - 1 targets
/// counts exactly once. The last may be short, and samples past windows() are empty: a batch is
/// filled up with them.
class ValidationOrder final : public SampleOrder {
 public:
  /// `most_windows` > 0 stops after that many. Throws InvalidArgument unless context >= 1.
  ValidationOrder(int64_t tokens, int64_t context, int64_t most_windows = 0);

  SampleWindow At(int64_t sample) const override;
  int64_t context() const override { return context_; }

  /// Windows with targets; 0 where there are fewer than two tokens.
  int64_t windows() const { return windows_; }

 private:
  int64_t targets_;
  int64_t context_;
  int64_t windows_;
};

}  // namespace pando
