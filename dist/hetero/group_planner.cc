#include "dist/hetero/group_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "dist/hetero/device_groups.h"
#include "dist/hetero/last_micro_batch.h"

namespace pando {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// More micro-steps than necessary are tried: smaller ones may fit each other better.
constexpr int64_t kMoreMicroSteps = 16;
constexpr int64_t kLongerMicroSteps = 8;
constexpr int kBisections = 50;
// Limits of the optimizer's time that are tried, against the least, if at least so much of a step
// is to be had.
constexpr double kSlowerOptimizers[] = {1.0, 1.1, 1.25, 1.5, 2, 3};
constexpr double kWorthwhile = 0.003;
// Of a curve's most efficient sizes, so many are tried.
constexpr size_t kSizes = 48;

/// Where there are many, those that take less time for a sample than all smaller ones, the largest
/// of them.
std::vector<int64_t> EfficientSizes(const TimeCurve& curve, int64_t most) {
  std::vector<int64_t> sizes;
  if (most <= static_cast<int64_t>(kSizes)) {
    for (int64_t b = 1; b <= most; ++b) sizes.push_back(b);
    return sizes;
  }
  double best = kNever;
  for (int64_t b = 1; b <= most; ++b) {
    const double each = curve.At(b) / static_cast<double>(b);
    if (each < best) sizes.push_back(b);
    best = std::min(best, each);
  }
  if (sizes.size() > kSizes) sizes.erase(sizes.begin(), sizes.end() - kSizes);
  return sizes;
}

}  // namespace

GroupPlanner::GroupPlanner(const StepModel& model, std::vector<DeviceGroup> groups,
                           ShareRule shares)
    : model_(model),
      rule_(shares),
      global_batch_(model.problem().global_batch),
      groups_(std::move(groups)),
      optimizer_limit_(kNever),
      best_seconds_(kNever) {
  double memory = 0;
  for (size_t i = 0; i < model_.used().size(); ++i) {
    memory += static_cast<double>(model_.device(i).memory);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    ruled_share_.push_back(rule_ == ShareRule::kEven
                               ? 1 / static_cast<double>(model_.used().size())
                               : static_cast<double>(Device(g).memory) / memory);
    const double least = SharesAreFree() || model_.stage() == 0 ? 0 : ruled_share_[g];
    std::vector<double> most;
    for (int64_t b = 0; b <= std::min(ComputeOf(g).seconds.largest(), global_batch_); ++b) {
      const double share = model_.MostShare(Device(g), ComputeOf(g), b);
      if (share < least) break;
      most.push_back(share);
    }
    most_share_.push_back(std::move(most));
    sizes_.push_back(EfficientSizes(ComputeOf(g).seconds, Cap(g)));
  }
}

const DeviceProfile& GroupPlanner::Device(size_t group) const {
  return model_.problem().devices[static_cast<size_t>(groups_[group].devices[0])];
}

const Compute& GroupPlanner::ComputeOf(size_t group) const {
  return Device(group).computes[static_cast<size_t>(groups_[group].compute)];
}

double GroupPlanner::Plan() {
  const bool fits = std::none_of(most_share_.begin(), most_share_.end(),
                                 [](const auto& most) { return most.empty(); });
  if (!fits) return kNever;
  PlanEachSpared();
  if (best_seconds_ == kNever || model_.stage() == 0 || !SharesAreFree()) return best_seconds_;
  // So far only that shards fit was asked. Where optimizers are slow, room for even ones pays.
  const double balanced = BalancedOptimizer();
  const double found = Optimizer(best_);
  for (const double slower : kSlowerOptimizers) {
    if (slower * balanced > found || found - balanced < kWorthwhile * best_seconds_) break;
    optimizer_limit_ = slower * balanced;
    PlanEachSpared();
  }
  return best_seconds_;
}

/// The way in which room is made looks at one step at a time: so each kind is spared once.
void GroupPlanner::PlanEachSpared() {
  made_room_ = false;
  spared_ = groups_.size();
  PlanOnce();
  for (spared_ = 0; made_room_ && spared_ < groups_.size(); ++spared_) PlanOnce();
}

void GroupPlanner::PlanOnce() { model_.meets_every_micro_step() ? PlanMeeting() : PlanOwn(); }

/// Seconds of the optimizer if memory were no limit.
double GroupPlanner::BalancedOptimizer() const {
  double speed = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    speed += static_cast<double>(groups_[g].devices.size()) /
             std::max(Device(g).optimizer_seconds, 1e-15);
  }
  return static_cast<double>(model_.problem().parameters()) / speed;
}

/// That a device can hold beside a micro-batch and update in time.
double GroupPlanner::Room(size_t group, int64_t batch) const {
  const double seconds =
      Device(group).optimizer_seconds * static_cast<double>(model_.problem().parameters());
  const double most = MostShare(group, batch);
  return seconds * most <= optimizer_limit_ ? most : optimizer_limit_ / seconds;
}

std::optional<std::vector<double>> GroupPlanner::Shares(const Slots& slots) const {
  if (model_.stage() == 0) return std::vector<double>(slots.size(), 1);
  if (!SharesAreFree()) {
    std::vector<double> shares;
    for (const Slot& s : slots) shares.push_back(ruled_share_[s.group]);
    return shares;
  }
  std::vector<Holders> holders;
  for (const Slot& s : slots) {
    holders.push_back({MostShare(s.group, s.batch), Device(s.group).optimizer_seconds, s.count});
  }
  return ShareOut(holders);
}

/// Of the slowest device; infinite if shares don't fit.
double GroupPlanner::Optimizer(const Slots& slots) const {
  const std::optional<std::vector<double>> shares = Shares(slots);
  if (!shares) return kNever;
  double slowest = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    slowest = std::max(slowest, (*shares)[i] * Device(slots[i].group).optimizer_seconds);
  }
  return slowest * static_cast<double>(model_.problem().parameters());
}

/// The smaller micro-batch of the slot that frees most memory for a sample that the step loses.
GroupPlanner::Lowering GroupPlanner::BestLowering(const Slot& slot,
                                                  const SamplesOf& samples) const {
  Lowering best{0, -1};
  const int64_t now = samples(slot.group, slot.batch);
  const auto consider = [&](int64_t batch) {
    const auto lost = static_cast<double>(now - samples(slot.group, batch));
    const double gain = Room(slot.group, batch) - Room(slot.group, slot.batch);
    const double rate = lost <= 0 ? kNever : gain / lost;
    if (rate > best.rate) best = {batch, rate};
  };
  consider(slot.batch - 1);
  consider(0);
  for (const int64_t b : sizes_[slot.group]) {
    if (b < slot.batch) consider(b);
  }
  return best;
}

/// Lowers micro-batches until shards fit beside them: where that frees most for a sample lost, and
/// of the last kind to be lowered only as many devices as need be. No slots if it can't be done.
/// `samples`: how many a device does with a micro-batch.
GroupPlanner::Slots GroupPlanner::MakeRoom(Slots slots, const SamplesOf& samples) const {
  if (model_.stage() == 0 || !SharesAreFree()) return slots;
  double room = 0;
  for (const Slot& s : slots) room += static_cast<double>(s.count) * Room(s.group, s.batch);
  while (room < 1 - 1e-12) {
    made_room_ = true;
    Slot* best = nullptr;
    Lowering how{};
    for (Slot& s : slots) {
      if (s.batch == 0) continue;
      const Lowering there = BestLowering(s, samples);
      const bool spared = s.group == spared_ && best != nullptr && best->group != spared_;
      const bool instead = best != nullptr && best->group == spared_ && s.group != spared_;
      if (spared || (best != nullptr && !instead && there.rate <= how.rate)) continue;
      best = &s;
      how = there;
    }
    if (best == nullptr) return {};
    const double gain = Room(best->group, how.batch) - Room(best->group, best->batch);
    const double needed = gain > 0 ? std::ceil((1 - room) / gain) : kNever;
    if (needed < static_cast<double>(best->count)) {
      const auto lowered = static_cast<int64_t>(needed);
      best->count -= lowered;
      slots.push_back({best->group, lowered, how.batch});
      return slots;
    }
    best->batch = how.batch;
    room += gain * static_cast<double>(best->count);
  }
  return slots;
}

void GroupPlanner::Consider(double seconds, Slots slots, double own_seconds) {
  seconds += Optimizer(slots);
  if (seconds >= best_seconds_) return;
  best_seconds_ = seconds;
  best_ = std::move(slots);
  best_own_seconds_ = own_seconds;
}

// Stages 2 and 3.

GroupPlanner::Slots GroupPlanner::MeetingWithin(double seconds) const {
  Slots slots;
  for (size_t g = 0; g < groups_.size(); ++g) {
    slots.push_back({g, static_cast<int64_t>(groups_[g].devices.size()),
                     MostWithin(ComputeOf(g).seconds, seconds, Cap(g))});
  }
  return MakeRoom(std::move(slots), [](size_t, int64_t batch) { return batch; });
}

void GroupPlanner::PlanMeeting() {
  std::vector<double> times;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto of_group = ComputeOf(g).seconds.seconds();
    times.insert(times.end(), of_group.begin(), of_group.begin() + Cap(g) + 1);
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const int64_t most = AtOnce(MeetingWithin(times.back()));
  if (most == 0) return;
  const int64_t fewest = (global_batch_ + most - 1) / most;
  for (int64_t k = fewest; k <= std::min(fewest + kMoreMicroSteps, global_batch_); ++k) {
    TryMicroSteps(k, times);
  }
  for (const int64_t k : {2 * fewest, 3 * fewest, 4 * fewest}) {
    if (k > fewest + kMoreMicroSteps && k <= global_batch_) TryMicroSteps(k, times);
  }
}

/// Gives up samples that no micro-step needs where that makes the optimizer faster.
GroupPlanner::Slots GroupPlanner::Trim(Slots slots, int64_t steps) const {
  if (model_.stage() == 0 || !SharesAreFree()) return slots;
  double seconds = Optimizer(slots);
  if (seconds < kWorthwhile * best_seconds_) return slots;
  while (true) {
    const int64_t spare = (steps * AtOnce(slots) - global_batch_) / steps;
    Slots best;
    for (size_t i = 0; spare > 0 && i < slots.size(); ++i) {
      if (slots[i].batch == 0) continue;
      Slots there = slots;
      const int64_t lowered = std::min(spare, there[i].count);
      there[i].count -= lowered;
      there.push_back({there[i].group, lowered, there[i].batch - 1});
      if (there[i].count == 0) there.erase(there.begin() + static_cast<int64_t>(i));
      const double less = Optimizer(there);
      if (less >= seconds) continue;
      seconds = less;
      best = std::move(there);
    }
    if (best.empty()) return slots;
    slots = std::move(best);
  }
}

int64_t GroupPlanner::AtOnce(const Slots& slots) {
  int64_t sum = 0;
  for (const Slot& s : slots) sum += s.count * s.batch;
  return sum;
}

/// Looks for the shortest micro-step in which `steps` of them are enough.
void GroupPlanner::TryMicroSteps(int64_t steps, const std::vector<double>& times) {
  const auto enough = std::partition_point(times.begin(), times.end(), [&](double seconds) {
    return steps * AtOnce(MeetingWithin(seconds)) < global_batch_;
  });
  // Longer ones may leave less for the last.
  const int64_t tries = std::min<int64_t>(times.end() - enough, kLongerMicroSteps);
  for (auto seconds = enough; seconds != enough + tries; ++seconds) {
    if (static_cast<double>(steps - 1) * model_.MicroStep(*seconds) >= best_seconds_) return;
    Slots slots = MeetingWithin(*seconds);
    TryMicroStep(steps, Trim(slots, steps));
    TryMicroStep(steps, std::move(slots));
  }
}

/// Weighs `steps` micro-steps, of which all but the last are full.
void GroupPlanner::TryMicroStep(int64_t steps, Slots slots) {
  const int64_t at_once = AtOnce(slots);
  if (at_once == 0 || (steps - 1) * at_once >= global_batch_) return;
  double full = 0;
  std::vector<Takers> takers;
  for (const Slot& s : slots) {
    full = std::max(full, ComputeOf(s.group).seconds.At(s.batch));
    takers.push_back({&ComputeOf(s.group).seconds, s.batch, s.count});
  }
  const double last = SoonestWithin(global_batch_ - (steps - 1) * at_once, takers);
  Consider(static_cast<double>(steps - 1) * model_.MicroStep(full) + model_.MicroStep(last) +
               model_.Ends(steps > 1 ? full : last),
           std::move(slots), 0);
}

std::vector<RankBatch> GroupPlanner::MeetingBatches(const Slots& slots) const {
  std::vector<RankBatch> batches;
  std::vector<const TimeCurve*> curves;
  int64_t samples = 0;
  for (const Slot& s : slots) {
    batches.insert(batches.end(), static_cast<size_t>(s.count), {s.batch, 1, s.batch});
    curves.insert(curves.end(), static_cast<size_t>(s.count), &ComputeOf(s.group).seconds);
    samples += s.count * s.batch;
  }
  SpreadLast(global_batch_, samples, curves, batches);
  return batches;
}

// Stages 0 and 1.

/// The most samples that a device goes through in micro-batches of `batch` within a time.
RankBatch GroupPlanner::MostOwn(size_t group, int64_t batch, double seconds) const {
  const TimeCurve& curve = ComputeOf(group).seconds;
  if (batch == 0) return {};
  const double one = curve.At(batch);
  auto full = static_cast<int64_t>(std::min(seconds / one, static_cast<double>(global_batch_)));
  for (; full >= 0; --full) {
    const double before = static_cast<double>(full) * one;
    const auto within = [&](int64_t last) {
      const double end = curve.At(last);
      return model_.OwnSteps(before + end, full > 0 ? one : end, end) <= seconds;
    };
    if (!within(1)) continue;
    int64_t good = 1, bad = batch + 1;
    while (bad - good > 1) (within((good + bad) / 2) ? good : bad) = (good + bad) / 2;
    return {batch, full + 1, good};
  }
  return {};
}

GroupPlanner::Slots GroupPlanner::OwnWithin(double seconds) const {
  Slots slots;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Slot best{g, static_cast<int64_t>(groups_[g].devices.size()), 0};
    int64_t most = 0;
    for (const int64_t b : sizes_[g]) {
      const int64_t samples = MostOwn(g, b, seconds).samples();
      if (samples <= most) continue;
      most = samples;
      best.batch = b;
    }
    slots.push_back(best);
  }
  return MakeRoom(std::move(slots), [&](size_t group, int64_t batch) {
    return std::min(MostOwn(group, batch, seconds).samples(), global_batch_);
  });
}

int64_t GroupPlanner::OwnSamples(const Slots& slots, double seconds) const {
  int64_t sum = 0;
  for (const Slot& s : slots) sum += s.count * MostOwn(s.group, s.batch, seconds).samples();
  return sum;
}

void GroupPlanner::PlanOwn() {
  // Any device alone, one sample at a time, is slower than all.
  double slow = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (Cap(g) == 0) continue;
    const double one = ComputeOf(g).seconds.At(1);
    slow = std::max(slow, model_.OwnSteps(static_cast<double>(global_batch_) * one, one, one));
  }
  slow *= 1 + 1e-9;  // sums are rounded in another order
  Slots slots = OwnWithin(slow);
  if (OwnSamples(slots, slow) < global_batch_) return;
  double enough = slow, short_of = 0;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (enough + short_of) / 2;
    Slots there = OwnWithin(middle);
    if (OwnSamples(there, middle) >= global_batch_) {
      enough = middle;
      slots = std::move(there);
    } else {
      short_of = middle;
    }
  }
  const double ends = std::max(enough, model_.OwnSteps(0, 0, 0)) + model_.Ends(0);
  Consider(ends, std::move(slots), enough);
}

std::vector<RankBatch> GroupPlanner::OwnBatches(const Slots& slots) const {
  std::vector<RankBatch> batches;
  int64_t left = global_batch_;
  for (const Slot& s : slots) {
    for (int64_t i = 0; i < s.count; ++i) {
      RankBatch b = MostOwn(s.group, s.batch, best_own_seconds_);
      if (b.samples() > left) {
        const int64_t micro = std::min(s.batch, left);
        const int64_t steps = left == 0 ? 0 : (left + micro - 1) / micro;
        b = {micro, steps, left - std::max<int64_t>(steps - 1, 0) * micro};
      }
      left -= b.samples();
      batches.push_back(b);
    }
  }
  return batches;
}

HeteroPlan GroupPlanner::Found() const {
  const std::vector<double> shares = *Shares(best_);
  const std::vector<RankBatch> batches =
      model_.meets_every_micro_step() ? MeetingBatches(best_) : OwnBatches(best_);
  HeteroPlan plan{model_.stage(), std::vector<DevicePlan>(model_.problem().devices.size()), 0};
  std::vector<size_t> next(groups_.size());
  size_t at = 0;
  for (size_t i = 0; i < best_.size(); ++i) {
    const size_t g = best_[i].group;
    for (int64_t n = 0; n < best_[i].count; ++n) {
      const auto d = static_cast<size_t>(groups_[g].devices[next[g]++]);
      plan.devices[d] = {true, groups_[g].compute, batches[at++], shares[i]};
    }
  }
  plan.seconds = PredictStep(model_.problem(), plan);
  return plan;
}

}  // namespace pando
