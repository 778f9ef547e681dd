#pragma once

// One stage, some of the devices, planned kind by kind: the core of FastPlan.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "dist/hetero/step_model.h"

namespace pando {

/// How shares are chosen: freely, or by a rule, as others do.
enum class ShareRule { kFree, kEven, kByMemory };

/// Devices of one kind, and how they compute.
struct DeviceGroup {
  std::vector<int> devices;  ///< indices into the problem's
  int compute = 0;
};

class GroupPlanner {
 public:
  /// `model` outlives this, and uses the groups' devices.
  GroupPlanner(const StepModel& model, std::vector<DeviceGroup> groups, ShareRule shares);

  /// Finds the fastest plan that it can; its time, infinite if nothing fits.
  double Plan();
  /// What Plan found, device by device.
  HeteroPlan Found() const;

 private:
  /// Devices of a group that take the same micro-batch.
  struct Slot {
    size_t group;
    int64_t count;
    int64_t batch;
  };
  using Slots = std::vector<Slot>;
  using SamplesOf = std::function<int64_t(size_t group, int64_t batch)>;

  const DeviceProfile& Device(size_t group) const;
  const Compute& ComputeOf(size_t group) const;
  bool SharesAreFree() const { return rule_ == ShareRule::kFree; }
  int64_t Cap(size_t group) const { return static_cast<int64_t>(most_share_[group].size()) - 1; }
  double MostShare(size_t group, int64_t batch) const {
    return most_share_[group][static_cast<size_t>(batch)];
  }
  void PlanEachSpared();
  void PlanOnce();
  double BalancedOptimizer() const;
  double Room(size_t group, int64_t batch) const;
  std::optional<std::vector<double>> Shares(const Slots& slots) const;
  double Optimizer(const Slots& slots) const;
  struct Lowering {
    int64_t batch;
    double rate;  ///< share freed for a sample lost
  };
  Lowering BestLowering(const Slot& slot, const SamplesOf& samples) const;
  Slots MakeRoom(Slots slots, const SamplesOf& samples) const;

  void PlanMeeting();
  void TryMicroSteps(int64_t steps, const std::vector<double>& times);
  void TryMicroStep(int64_t steps, Slots slots);
  Slots MeetingWithin(double seconds) const;
  Slots Trim(Slots slots, int64_t steps) const;
  static int64_t AtOnce(const Slots& slots);

  void PlanOwn();
  Slots OwnWithin(double seconds) const;
  RankBatch MostOwn(size_t group, int64_t batch, double seconds) const;
  int64_t OwnSamples(const Slots& slots, double seconds) const;

  void Consider(double seconds, Slots slots, double own_seconds);
  std::vector<RankBatch> MeetingBatches(const Slots& slots) const;
  std::vector<RankBatch> OwnBatches(const Slots& slots) const;

  const StepModel& model_;
  ShareRule rule_;
  int64_t global_batch_;
  std::vector<DeviceGroup> groups_;
  std::vector<double> ruled_share_;              ///< by group, where it isn't free
  std::vector<std::vector<double>> most_share_;  ///< by group and micro-batch
  std::vector<std::vector<int64_t>> sizes_;      ///< by group: micro-batches worth their time
  double optimizer_limit_;
  size_t spared_ = 0;  ///< the group that makes room last, if any
  mutable bool made_room_ = false;
  double best_seconds_;
  Slots best_;
  double best_own_seconds_ = 0;
};

}  // namespace pando
