#include "tools/pando/auto_plan.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "dist/communicator/broadcast_text.h"
#include "dist/hetero/fast_planner.h"
#include "dist/hetero/lonely_communicator.h"
#include "dist/hetero/profile_file.h"
#include "engine/error.h"
#include "tools/pando/plan_report.h"
#include "train/device_profiler.h"

namespace pando {
namespace {

constexpr int64_t kLargest = 64;       // micro-batch that is tried
constexpr double kSeconds = 20;        // for each way to compute
constexpr double kShare = 1.0 / 1024;  // of the state, while sizes are tried
constexpr int64_t kLinkElements = int64_t{1} << 20;
constexpr int kLinkTimes = 3;

/// This rank's device, as it computes beside the others: they are measured at the same time, since
/// ranks of one machine share it.
MeasuredProfile Measure(const GptConfig& gpt, const TrainerOptions& trainer, Device& device) {
  MeasuredProfile profile;
  profile.device = device.name();
  profile.length = trainer.length > 0 ? trainer.length : gpt.context;
  profile.dtype = trainer.precision;
  ProfileOptions options;
  options.length = profile.length;
  options.largest = std::min(kLargest, trainer.global_batch);
  options.seconds = kSeconds;
  for (const bool recompute : {false, true}) {
    ParameterRegistry registry;
    Gpt model(registry.Root(), gpt);
    model.SetRecompute(recompute);
    const std::unique_ptr<Communicator> nobody = NewLonelyCommunicator(2, device);
    ZeroOptions zero;
    zero.stage = 3;
    zero.shares = {kShare, 1 - kShare};
    zero.dtype = trainer.precision;
    Zero parameters(registry, model.units(), zero, nobody.get(), device);
    parameters.Initialize(trainer.seed);
    const MeasuredDevice measured = ProfileDevice(model, parameters, options);
    profile.units.clear();
    for (int u = 0; u < parameters.schedule().units(); ++u) {
      profile.units.push_back({parameters.schedule().unit(u).interval.size(),
                               parameters.schedule().Gathers(u, /*with_backward=*/true)});
    }
    profile.memory = measured.memory;
    profile.optimizer_seconds = measured.optimizer_seconds;
    profile.ways.push_back({recompute, measured.compute.fixed_bytes,
                            measured.compute.bytes_per_sample, measured.points});
  }
  return profile;
}

/// Of the slowest rank, in gathers of even slices; the same on all.
Link MeasureLinks(Device& device, Communicator& peers) {
  const auto seconds_of = [&](int64_t elements) {
    Tensor data = Tensor::Zeros({elements * peers.size()}, DType::kF32, device, "a link's load");
    const std::vector<int64_t> counts(static_cast<size_t>(peers.size()), elements);
    double best = 1e9;
    for (int i = 0; i < kLinkTimes; ++i) {
      peers.Barrier();
      const auto start = std::chrono::steady_clock::now();
      peers.AllGatherV(TypedSpan(data), counts)->Wait();
      device.Synchronize();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count());
    }
    Tensor slowest = Tensor::FromHost(std::vector<double>{best}, {1}, device, "a time");
    peers.AllReduce(TypedSpan(slowest), ReduceOp::kMax)->Wait();
    return slowest.ToHost<double>()[0];
  };
  const double hops = peers.size() - 1;
  const double empty = seconds_of(1), full = seconds_of(kLinkElements);
  const double bytes = hops * static_cast<double>(kLinkElements * SizeOf(DType::kF32));
  return {bytes / std::max(full - empty, 1e-9), empty / hops};
}

PlanProblem ProblemOf(const std::vector<MeasuredProfile>& profiles, const Link& link,
                      int64_t global_batch) {
  PlanProblem problem;
  problem.global_batch = global_batch;
  problem.units = profiles[0].units;
  problem.dtype = profiles[0].dtype;
  for (size_t r = 0; r < profiles.size(); ++r) {
    const absl::StatusOr<DeviceProfile> device = ToDevice(profiles[r]);
    Require(device.ok(), std::string(device.status().message()));
    problem.devices.push_back(*device);
    DeviceProfile& d = problem.devices.back();
    d.name = absl::StrCat("rank ", r, " ", profiles[r].device);
    d.kind = d.node = static_cast<int>(r);
    d.within = d.between = link;
  }
  return problem;
}

}  // namespace

std::string PlanByMeasuring(const GptConfig& gpt, const TrainerOptions& trainer, Device& device,
                            Communicator& peers,
                            const std::function<void(const std::string&)>& note) {
  note("plan: measuring the devices");
  const std::string mine = FormatProfile(Measure(gpt, trainer, device));
  std::vector<MeasuredProfile> profiles;
  for (int r = 0; r < peers.size(); ++r) {
    const absl::StatusOr<MeasuredProfile> of_rank = ParseProfile(BroadcastText(&peers, mine, r));
    Require(of_rank.ok(), std::string(of_rank.status().message()));
    profiles.push_back(*of_rank);
  }
  const PlanProblem problem =
      ProblemOf(profiles, MeasureLinks(device, peers), trainer.global_batch);
  // Ranks that are there are used, if only for their memory.
  const std::optional<HeteroPlan> plan = FastPlan(problem, {ShareRule::kFree, /*members=*/false});
  if (!plan) {
    throw OutOfMemory(
        "no plan fits into the ranks' memory: use more ranks, a smaller model, or a "
        "larger --memory-budget");
  }
  note(absl::StrFormat("plan: ZeRO stage %d, about %.3f s a step", plan->stage, plan->seconds));
  const std::string table = PlanTable(problem, *plan);
  for (const absl::string_view line : absl::StrSplit(table, '\n', absl::SkipEmpty())) {
    note(std::string(line));
  }
  // Computed by all, but one rank's counts: rounding may differ between machines.
  return BroadcastText(&peers, FormatPlan(ToTrainPlan(problem, *plan)));
}

}  // namespace pando
