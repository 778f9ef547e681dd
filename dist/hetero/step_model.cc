#include "dist/hetero/step_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dist/hetero/device_groups.h"
#include "dist/zero/state_bytes.h"
#include "engine/error.h"

namespace pando {
namespace {

constexpr double kGradBytes = sizeof(float);

/// Bytes of parts of the model that are whole for a while (docs/zero.md): gradients of the
/// embedding, of the unit that is computed and of two on their way; parameters of two units.
int64_t TransientBytes(const PlanProblem& problem, int stage) {
  std::vector<int64_t> sizes;
  for (const PlanUnit& u : problem.units) sizes.push_back(u.elements);
  std::sort(sizes.rbegin(), sizes.rend());
  sizes.resize(std::max<size_t>(sizes.size(), 4));
  int64_t bytes = 0;
  if (stage >= 2) bytes += (sizes[0] + sizes[1] + sizes[2] + sizes[3]) * int64_t{sizeof(float)};
  if (stage == 3) bytes += (sizes[0] + sizes[1]) * SizeOf(problem.dtype);
  return bytes;
}

}  // namespace

StepModel::StepModel(const PlanProblem& problem, int stage, std::vector<int> used)
    : problem_(problem),
      stage_(used.size() == 1 ? 0 : stage),
      used_(std::move(used)),
      parameters_(static_cast<double>(problem.parameters())) {
  if (used_.size() == 1) return;
  bytes_per_second_ = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < used_.size(); ++i) {
    // Ranks stand in a ring, in their order.
    const bool leaves = device(i).node != device((i + 1) % used_.size()).node;
    const Link& link = leaves ? device(i).between : device(i).within;
    bytes_per_second_ = std::min(bytes_per_second_, link.bytes_per_second);
    latency_ = std::max(latency_, link.latency);
  }
  const auto element = static_cast<double>(SizeOf(problem.dtype));
  // An all-reduce is a reduce-scatter and an all-gather of even slices.
  const auto n = static_cast<double>(used_.size());
  const int rounds = stage_ == 0 ? 2 : 1;
  const double reduce_bytes = stage_ == 0 ? 2 * kGradBytes * (n - 1) / n : kGradBytes;
  for (const PlanUnit& u : problem_.units) {
    const auto elements = static_cast<double>(u.elements);
    reduce_ += Collective(elements * reduce_bytes, rounds);
    const double gather = Collective(elements * element, 1);
    gather_ += gather;
    gather_backward_ += gather * (u.gathers - 1);
  }
  const auto first = static_cast<double>(problem_.units.front().elements);
  first_gather_ = Collective(first * element, 1);
  gather_forward_ = gather_ - first_gather_;
  first_reduce_ = Collective(first * reduce_bytes, rounds);
}

/// As a unit lies in one interval or two, its collectives send nearly all of it (docs/zero.md).
double StepModel::Collective(double bytes, int rounds) const {
  return bytes / bytes_per_second_ + rounds * latency_ * static_cast<double>(used_.size() - 1);
}

double StepModel::MicroStep(double compute) const {
  const double forward = problem_.forward_part * compute, backward = compute - forward;
  if (stage_ == 2) return forward + std::max(backward, reduce_ - first_reduce_);
  return first_gather_ + std::max(forward, gather_forward_) +
         std::max(backward, gather_backward_ + reduce_ - first_reduce_);
}

double StepModel::OwnSteps(double all, double first, double last) const {
  if (used_.size() == 1) return all;
  const double backward = (1 - problem_.forward_part) * last;
  double seconds = all + std::max(0.0, reduce_ - first_reduce_ - backward);
  if (stage_ == 1) seconds += std::max(0.0, gather_forward_ - problem_.forward_part * first);
  return seconds;
}

double StepModel::Ends(double first) const {
  if (used_.size() == 1) return 0;
  if (stage_ == 0 || stage_ == 3) return first_reduce_;
  const double ends = first_reduce_ + first_gather_;
  return stage_ == 1 ? ends : ends + std::max(0.0, gather_forward_ - problem_.forward_part * first);
}

int64_t StepModel::Memory(const Compute& compute, int64_t batch, double share) const {
  const int64_t whole = problem_.parameters();
  const auto own = static_cast<int64_t>(std::ceil(share * static_cast<double>(whole)));
  return ZeroStateBytes(stage_, problem_.dtype, whole, own) +
         (used_.size() == 1 ? 0 : TransientBytes(problem_, stage_)) + compute.fixed_bytes +
         compute.bytes_per_sample * batch;
}

double StepModel::MostShare(const DeviceProfile& device, const Compute& compute,
                            int64_t batch) const {
  const int64_t left = device.memory - Memory(compute, batch, 0);
  if (left < 0) return -1;
  if (stage_ == 0) return 1;
  const int64_t whole = problem_.parameters();
  const auto bytes = static_cast<double>(ZeroStateBytes(stage_, problem_.dtype, whole, whole) -
                                         ZeroStateBytes(stage_, problem_.dtype, whole, 0));
  // Below the last element, so that rounding up stays within memory.
  const double share = static_cast<double>(left) / bytes - 1.0 / static_cast<double>(whole);
  return std::clamp(share, 0.0, 1.0);
}

std::optional<std::vector<double>> StepModel::Shares(const std::vector<double>& most) const {
  if (*std::min_element(most.begin(), most.end()) < 0) return std::nullopt;
  if (stage_ == 0) return std::vector<double>(most.size(), 1);
  std::vector<Holders> holders;
  holders.reserve(most.size());
  for (size_t i = 0; i < most.size(); ++i) {
    holders.push_back({most[i], device(i).optimizer_seconds, 1});
  }
  return ShareOut(holders);
}

double StepModel::Optimizer(const std::vector<double>& shares) const {
  double slowest = 0;
  for (size_t i = 0; i < used_.size(); ++i) {
    slowest = std::max(slowest, shares[i] * device(i).optimizer_seconds);
  }
  return slowest * parameters_;
}

double PredictStep(const PlanProblem& problem, const HeteroPlan& plan, std::vector<double>* busy) {
  std::vector<int> used;
  for (size_t d = 0; d < plan.devices.size(); ++d) {
    if (plan.devices[d].used) used.push_back(static_cast<int>(d));
  }
  const StepModel model(problem, plan.stage, used);
  if (busy != nullptr) busy->assign(plan.devices.size(), 0);
  std::vector<double> shares;
  double slowest = 0, first = 0, full = 0, last = 0;
  int64_t steps = 0;
  for (const int d : used) {
    const DevicePlan& p = plan.devices[static_cast<size_t>(d)];
    const TimeCurve& curve =
        problem.devices[static_cast<size_t>(d)].computes[static_cast<size_t>(p.compute)].seconds;
    shares.push_back(model.stage() == 0 ? 1 : p.share);
    const RankBatch& b = p.batch;
    const double one = b.micro_steps > 1 ? curve.At(b.micro_batch) : 0;
    const double end = b.micro_steps > 0 ? curve.At(b.last_micro_batch) : 0;
    const double all = static_cast<double>(std::max<int64_t>(b.micro_steps - 1, 0)) * one + end;
    const double begin = b.micro_steps > 1 ? one : end;
    steps = std::max(steps, b.micro_steps);
    if (busy != nullptr) (*busy)[static_cast<size_t>(d)] = all;
    if (model.meets_every_micro_step()) {
      first = std::max(first, begin);
      full = std::max(full, model.MicroStep(one));
      last = std::max(last, model.MicroStep(end));
    } else {
      slowest = std::max(slowest, model.OwnSteps(all, begin, end));
    }
  }
  if (model.meets_every_micro_step()) slowest = static_cast<double>(steps - 1) * full + last;
  return slowest + model.Ends(first) + model.Optimizer(shares);
}

void CheckPlan(const PlanProblem& problem, const HeteroPlan& plan) {
  Require(plan.devices.size() == problem.devices.size(), "a plan for ", plan.devices.size(), " of ",
          problem.devices.size(), " devices");
  BatchPlan batches;
  std::vector<int> used;
  double shares = 0;
  for (size_t d = 0; d < plan.devices.size(); ++d) {
    if (!plan.devices[d].used) continue;
    used.push_back(static_cast<int>(d));
    batches.ranks.push_back(plan.devices[d].batch);
    shares += plan.devices[d].share;
  }
  Require(!used.empty(), "no device is used");
  batches.Check(plan.stage);
  Require(batches.global_batch() == problem.global_batch, "a global batch of ",
          batches.global_batch(), " instead of ", problem.global_batch);
  const StepModel model(problem, plan.stage, used);
  Require(model.stage() == 0 || std::abs(shares - 1) < 1e-9, "shares add up to ", shares);
  for (const int d : used) {
    const DevicePlan& p = plan.devices[static_cast<size_t>(d)];
    const DeviceProfile& device = problem.devices[static_cast<size_t>(d)];
    const Compute& compute = device.computes.at(static_cast<size_t>(p.compute));
    Require(p.batch.micro_batch <= compute.seconds.largest(), device.name, ": a micro-batch of ",
            p.batch.micro_batch, " was never measured");
    const int64_t need = model.Memory(compute, p.batch.micro_batch, p.share);
    Require(need <= device.memory, device.name, " needs ", need, " bytes of ", device.memory);
  }
}

void CheckProblem(const PlanProblem& problem) {
  Require(problem.global_batch > 0, "a global batch of ", problem.global_batch);
  Require(!problem.units.empty() && problem.parameters() > 0, "a model without parameters");
  Require(!problem.devices.empty(), "no devices");
  Require(!problem.stages.empty(), "no ZeRO stage to choose from");
  for (const int stage : problem.stages) {
    Require(stage >= 0 && stage <= 3, "ZeRO stage ", stage, ": there are 0 to 3");
  }
  for (const DeviceProfile& d : problem.devices) {
    Require(!d.computes.empty(), d.name, ": nothing is known of its speed");
    Require(d.memory >= 0, d.name, ": ", d.memory, " bytes of memory");
    Require(d.optimizer_seconds >= 0, d.name, ": a time below 0");
    if (problem.devices.size() == 1) continue;
    for (const Link& link : {d.within, d.between}) {
      Require(link.bytes_per_second > 0 && link.latency >= 0, d.name, ": a link of ",
              link.bytes_per_second, " bytes a second, ", link.latency, " s long");
    }
  }
}

}  // namespace pando
