#pragma once

// ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
// SC 2020), stages 0 to 3 as one mechanism: what is kept whole and what as the rank's own interval
// of the flat space. See docs/zero.md for memory and traffic.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dist/communicator/communicator.h"
#include "dist/zero/shard_map.h"
#include "engine/flat_parameters.h"
#include "engine/module.h"
#include "engine/optimizer.h"
#include "engine/tape.h"

namespace pando {

struct ZeroOptions {
  int stage = 0;
  /// Each rank's share of the flat space; empty: even.
  std::vector<double> shares;
  DType dtype = DType::kF32;  ///< of computation
  AdamWOptions adamw;
  /// Whether gathers are issued a unit ahead and reductions left running; off to measure what it
  /// gains.
  bool overlap = true;
};

/// A model's parameters, gradients and optimizer state as one rank of a group holds them, and what
/// a step does with them. With one rank there is no communication, and everything is whole.
///
/// A step:  BeginStep; MicroStep or EmptyMicroStep for each micro-batch, the last told so;
/// FinishGradients; SumOfSquares; OptimizerStep (or not). All ranks make the same calls in the same
/// order; at stages 0 and 1 their numbers of micro-steps before the last may differ.
class Zero {
 public:
  /// Places the parameters of `registry`. `units`: the model's segments in the order of forward
  /// (LanguageModel::units(); none: the model is one). `communicator` outlives this; null: one
  /// rank. Values are undefined until Initialize or a load. Throws InvalidArgument, OutOfMemory,
  /// PeerLost; InvalidArgument also where ranks don't agree on model or options.
  Zero(const ParameterRegistry& registry, const std::vector<Unit*>& units,
       const ZeroOptions& options, Communicator* communicator, Device& device);
  ~Zero();
  Zero(const Zero&) = delete;
  Zero& operator=(const Zero&) = delete;

  /// First values, by each parameter's initializer; no rank makes more than it holds.
  void Initialize(uint64_t seed);

  void BeginStep();
  /// Runs forward and Backward in `forward_backward`, with parameters gathered and gradients
  /// reduced as the stage asks.
  void MicroStep(const std::function<void()>& forward_backward, bool last);
  /// This rank has no samples in this micro-step: takes part in its collectives only.
  void EmptyMicroStep(bool last);
  /// Afterwards grads() is the sum over all ranks.
  void FinishGradients();
  /// Of the whole gradient, the same on every rank.
  double SumOfSquares();
  /// AdamW on the own interval; parameters become whole again where the stage says so.
  void OptimizerStep(double learning_rate, double grad_scale, uint64_t seed);

  /// Runs forward without gradients (evaluation, sampling), with parameters gathered; empty: this
  /// rank has no samples, and takes part in the gathers only.
  void Forward(const std::function<void()>& forward);
  /// Sum, or maximum, over the ranks of a few numbers that every rank has.
  void AllReduce(std::span<double> values, ReduceOp op = ReduceOp::kSum);

  const FlatLayout& layout() const;
  const ShardMap& shards() const;
  int rank() const;
  int ranks() const;
  Communicator* communicator() const;
  Device& device() const;
  DType dtype() const;
  int stage() const;

  /// The interval whose state this rank holds: all of it at stage 0.
  FlatInterval own() const;
  /// f32 masters and gradients of own(), the first element at index 0; gradients mean something
  /// between FinishGradients and the next BeginStep.
  Tensor& masters();
  Tensor& grads();
  /// Holds the moments of own().
  AdamW& optimizer();
  /// After masters were written (a load): rounds them into the values, everywhere they are held.
  void ValuesFromMasters();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
