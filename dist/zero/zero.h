#pragma once

// ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
// SC 2020), stages 0 to 3 as one mechanism: what is kept whole and what as the rank's own interval
// of the flat space. See docs/zero.md for memory and traffic.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/communicator/communicator.h"
#include "dist/zero/shard_map.h"
#include "dist/zero/state_bytes.h"
#include "dist/zero/unit_buffers.h"
#include "dist/zero/unit_schedule.h"
#include "engine/flat_parameters.h"
#include "engine/module.h"
#include "engine/optimizer.h"
#include "engine/tape.h"

namespace pando {

struct ZeroOptions {
  int stage = 0;
  /// Each rank's share of the flat space; empty: even.
  std::vector<double> shares = {};
  DType dtype = DType::kF32;  ///< of computation
  AdamWOptions adamw = {};
  /// Whether gathers are issued a unit ahead and reductions left running; off to measure what it
  /// gains.
  bool overlap = true;
};

/// A model's parameters, gradients and optimizer state as one rank of a group holds them, and what
/// a step does with them. With one rank there is no communication, and everything is whole.
///
/// A step: BeginStep; MicroStep or EmptyMicroStep for each micro-batch, the last told so;
/// FinishGradients; SumOfSquares; OptimizerStep (or not). All ranks make the same calls in the same
/// order, but that at stages 0 and 1 their numbers of micro-steps before the last may differ.
class Zero : private TapeObserver {
 public:
  /// Places the parameters of `registry`. `units`: the model's segments in the order of forward
  /// (LanguageModel::units(); none: the model is one). `communicator` outlives this; null: one
  /// rank. Values are zero until Initialize or a load. Throws InvalidArgument (also where ranks
  /// don't agree on model or options), OutOfMemory, PeerLost.
  Zero(const ParameterRegistry& registry, const std::vector<Unit*>& units,
       const ZeroOptions& options, Communicator* communicator, Device& device);
  ~Zero() override;
  Zero(const Zero&) = delete;
  Zero& operator=(const Zero&) = delete;

  /// First values, by each parameter's initializer; no rank makes more than it holds.
  void Initialize(uint64_t seed);

  void BeginStep();
  /// Runs forward and Backward in `forward_backward`, with parameters gathered and gradients
  /// reduced as the stage asks. If it throws, and there are peers, the communicator is aborted.
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
  /// rank has nothing to run, and takes part in the gathers only.
  void Forward(const std::function<void()>& forward);
  /// Sum, or maximum, over the ranks of a few numbers that every rank has.
  void AllReduce(std::span<double> values, ReduceOp op = ReduceOp::kSum);
  /// Throws Error if the values that every rank holds whole (stages 0 to 2) are not the same bits
  /// everywhere, naming the ranks that the majority differs from: they have computed wrong.
  void CheckReplicas();

  const FlatLayout& layout() const { return schedule_.layout(); }
  const UnitSchedule& schedule() const { return schedule_; }
  const ShardMap& shards() const { return shards_; }
  int rank() const { return rank_; }
  int ranks() const { return shards_.ranks(); }
  /// Null with one rank.
  Communicator* communicator() const { return communicator_; }
  Device& device() const { return device_; }
  DType dtype() const { return options_.dtype; }
  int stage() const { return options_.stage; }

  /// The interval whose state this rank holds: all of it at stage 0.
  FlatInterval own() const { return own_; }
  /// f32 masters and gradients of own(), the first element at index 0; gradients mean something
  /// between FinishGradients and the next BeginStep.
  Tensor& masters();
  Tensor& grads() { return own_grads_; }
  /// Holds the moments of own().
  AdamW& optimizer() { return *optimizer_; }
  /// Writes what this rank holds of the flat elements [begin, begin + values.size()) into the
  /// masters. Takes effect in the values with ValuesFromMasters.
  void WriteMasters(int64_t begin, std::span<const float> values);
  /// After masters were written (a load): rounds them into the values, everywhere they are held.
  void ValuesFromMasters();

 private:
  void BeforeForward(const Unit& unit) override { EnterUnit(unit, false); }
  void AfterForward(const Unit& unit) override { LeaveUnit(unit, false); }
  void BeforeBackward(const Unit& unit) override { EnterUnit(unit, true); }
  void AfterBackward(const Unit& unit) override { LeaveUnit(unit, true); }

  bool Alone() const { return ranks() == 1; }
  bool WholeValues() const { return Alone() || options_.stage < 3; }
  bool WholeGrads() const { return Alone() || options_.stage < 2; }
  void Allocate();
  void AllocateUnit(int u);
  void CheckAgreement();
  std::vector<int64_t> Gather(int64_t mine);
  void WriteInitial(const Parameter& p, FlatInterval part, int64_t offset, uint64_t seed);
  void MarkChanged();

  void Run(const std::function<void()>& body, int end, bool last);
  void EnterUnit(const Unit& unit, bool backward);
  void LeaveUnit(const Unit& unit, bool backward);
  void CheckPosition(const Unit& unit, bool backward) const;
  void Enter(int step);
  void Leave(int step);
  void StartGather(int u);
  void FinishGather(int u);
  void FinishGathers();
  void OpenGrads(int u);
  void StartReduce(int u);
  void FinishReduce(int u);
  void CompleteGrads(int u);

  UnitSchedule schedule_;
  bool observed_;  ///< whether the model has units, whose hooks say where it is
  ZeroOptions options_;
  Communicator* communicator_;
  Device& device_;
  int rank_ = 0;
  ShardMap shards_;
  FlatInterval own_;

  Tensor values_;  ///< whole, or at stage 3 of own_
  Tensor grads_;   ///< whole, or from stage 2 on of own_
  Tensor masters_, own_values_, own_grads_;
  std::optional<AdamW> optimizer_;

  std::vector<UnitBuffers> buffers_;  ///< by unit
  std::vector<int> reducing_;         ///< units whose reductions are in flight, oldest first
  int position_ = 0;                  ///< the schedule's step that comes next
  int end_ = 0;                       ///< and where this run of it ends
  bool last_ = false;                 ///< whether it is the step's last micro-step
};

}  // namespace pando
