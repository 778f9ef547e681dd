#include "dist/hetero/fast_planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "dist/hetero/group_planner.h"
#include "dist/hetero/step_model.h"

namespace pando {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kFew = 16;
constexpr size_t kAllSets = 5;

/// What is planned as one, and taken in or left out as one: a device where there are few, else a
/// kind.
std::vector<DeviceGroup> Groups(const PlanProblem& problem, const std::vector<int>& devices) {
  if (problem.devices.size() <= kFew) {
    std::vector<DeviceGroup> groups;
    groups.reserve(devices.size());
    for (const int d : devices) groups.push_back({{d}, 0});
    return groups;
  }
  std::map<int, DeviceGroup> by_kind;
  for (const int d : devices) {
    by_kind[problem.devices[static_cast<size_t>(d)].kind].devices.push_back(d);
  }
  std::vector<DeviceGroup> groups;
  groups.reserve(by_kind.size());
  for (auto& [kind, group] : by_kind) groups.push_back(std::move(group));
  return groups;
}

/// Samples a second in its best micro-batch.
double Speed(const DeviceProfile& device) {
  double best = 0;
  for (const Compute& c : device.computes) {
    for (int64_t b = 1; b <= c.seconds.largest(); ++b) {
      best = std::max(best, static_cast<double>(b) / c.seconds.At(b));
    }
  }
  return best;
}

std::vector<std::vector<int>> Blocks(const PlanProblem& problem) {
  std::vector<int> all(problem.devices.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<int>> blocks;
  for (DeviceGroup& g : Groups(problem, all)) blocks.push_back(std::move(g.devices));
  return blocks;
}

/// Sets of blocks to begin with: where there are few, each; else all; those left when the slowest
/// go, or those with the slowest links; each alone, and each node's.
std::vector<std::vector<bool>> FirstSets(const PlanProblem& problem,
                                         const std::vector<std::vector<int>>& blocks) {
  const size_t n = blocks.size();
  std::vector<std::vector<bool>> sets = {std::vector<bool>(n, true)};
  if (n <= kAllSets) {
    for (uint64_t set = 1; set < uint64_t{1} << n; ++set) {
      sets.emplace_back(n);
      for (size_t i = 0; i < n; ++i) sets.back()[i] = (set >> i & 1) != 0;
    }
    return sets;
  }
  std::vector<double> speed, link;
  for (const std::vector<int>& b : blocks) {
    const DeviceProfile& device = problem.devices[static_cast<size_t>(b[0])];
    speed.push_back(Speed(device));
    link.push_back(device.between.bytes_per_second);
  }
  for (const std::vector<double>& by : {speed, link}) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return by[a] < by[b]; });
    std::vector<bool> left(n, true);
    for (size_t i = 0; i + 1 < n; ++i) {
      left[order[i]] = false;
      sets.push_back(left);
    }
  }
  std::map<int, std::vector<bool>> nodes;
  for (size_t i = 0; i < n; ++i) {
    sets.emplace_back(n);
    sets.back()[i] = true;
    const int node = problem.devices[static_cast<size_t>(blocks[i][0])].node;
    auto& of_node = nodes.emplace(node, std::vector<bool>(n)).first->second;
    of_node[i] = true;
  }
  for (auto& [node, set] : nodes) sets.push_back(std::move(set));
  return sets;
}

/// The best plan of one stage on some devices: first with what each computes fastest, then with
/// each kind's other ways as far as that helps.
class Descent {
 public:
  Descent(const PlanProblem& problem, const StepModel& model, const PlanFreedom& freedom,
          HeteroPlan& best)
      : problem_(problem), model_(model), freedom_(freedom), best_(best) {}

  void Run() {
    std::vector<DeviceGroup> groups = Groups(problem_, model_.used());
    double seconds = Try(groups);
    size_t most_computes = 1;
    for (const DeviceGroup& g : groups) most_computes = std::max(most_computes, Computes(g));
    // All in the same way: one kind alone may not make room enough.
    for (size_t c = 1; c < most_computes; ++c) {
      std::vector<DeviceGroup> other = groups;
      for (DeviceGroup& g : other) g.compute = static_cast<int>(std::min(c, Computes(g) - 1));
      const double there = Try(other);
      if (there >= seconds) continue;
      seconds = there;
      groups = std::move(other);
    }
    if (seconds == kNever) return;
    for (bool better = true; better;) {
      better = false;
      for (DeviceGroup& g : groups) {
        const int before = g.compute;
        int best = before;
        for (size_t c = 0; c < Computes(g); ++c) {
          g.compute = static_cast<int>(c);
          const double there = g.compute == before ? seconds : Try(groups);
          if (there >= seconds) continue;
          seconds = there;
          best = g.compute;
          better = true;
        }
        g.compute = best;
      }
    }
  }

 private:
  size_t Computes(const DeviceGroup& g) const {
    if (!freedom_.computes) return 1;
    return problem_.devices[static_cast<size_t>(g.devices[0])].computes.size();
  }

  double Try(const std::vector<DeviceGroup>& groups) {
    GroupPlanner planner(model_, groups, freedom_.shares);
    const double seconds = planner.Plan();
    if (seconds < best_.seconds) {
      HeteroPlan plan = planner.Found();
      if (plan.seconds < best_.seconds) best_ = std::move(plan);
    }
    return seconds;
  }

  const PlanProblem& problem_;
  const StepModel& model_;
  const PlanFreedom& freedom_;
  HeteroPlan& best_;
};

/// Looks for the best set of members.
class MemberSearch {
 public:
  MemberSearch(const PlanProblem& problem, const PlanFreedom& freedom)
      : problem_(problem), freedom_(freedom), blocks_(Blocks(problem)) {
    best_.seconds = kNever;
  }

  HeteroPlan Run() {
    if (!freedom_.members) {
      Try(std::vector<bool>(blocks_.size(), true));
      return best_;
    }
    for (const std::vector<bool>& set : FirstSets(problem_, blocks_)) Try(set);
    // And from there one at a time.
    for (bool better = true; better;) {
      better = false;
      const std::vector<bool> from = best_set_;
      for (size_t i = 0; i < from.size(); ++i) {
        std::vector<bool> set = from;
        set[i] = !set[i];
        better = Try(set) || better;
      }
    }
    return best_;
  }

 private:
  /// Whether it is the best so far.
  bool Try(const std::vector<bool>& set) {
    if (!tried_.insert(set).second) return false;
    std::vector<int> used;
    for (size_t i = 0; i < set.size(); ++i) {
      if (set[i]) used.insert(used.end(), blocks_[i].begin(), blocks_[i].end());
    }
    if (used.empty()) return false;
    const double before = best_.seconds;
    for (const int stage : problem_.stages) {
      const StepModel model(problem_, stage, used);
      Descent(problem_, model, freedom_, best_).Run();
      if (used.size() == 1) break;  // there is nothing to be cut in parts
    }
    if (best_.seconds >= before) return false;
    best_set_ = set;
    return true;
  }

  const PlanProblem& problem_;
  const PlanFreedom& freedom_;
  std::vector<std::vector<int>> blocks_;
  std::set<std::vector<bool>> tried_;
  std::vector<bool> best_set_;
  HeteroPlan best_;
};

}  // namespace

std::optional<HeteroPlan> FastPlan(const PlanProblem& problem, const PlanFreedom& freedom) {
  CheckProblem(problem);
  HeteroPlan best = MemberSearch(problem, freedom).Run();
  if (best.devices.empty()) return std::nullopt;
  return best;
}

}  // namespace pando
