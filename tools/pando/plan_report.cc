#include "tools/pando/plan_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dist/hetero/step_model.h"
#include "tools/pando/progress.h"

namespace pando {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBarWidth = 24;
// Two slots of f32 masters and both moments, in the RAM of two nodes each.
constexpr double kHostBytes = 48;

/// Devices that do the same.
struct Row {
  std::string name;  ///< of the first of them
  int count = 0;
  DevicePlan plan;
  double busy = 0;
  int64_t memory = 0, need = 0;
};

StepModel ModelOf(const PlanProblem& problem, const HeteroPlan& plan) {
  std::vector<int> used;
  for (size_t d = 0; d < plan.devices.size(); ++d) {
    if (plan.devices[d].used) used.push_back(static_cast<int>(d));
  }
  return {problem, plan.stage, used};
}

std::vector<Row> Rows(const PlanProblem& problem, const HeteroPlan& plan) {
  std::vector<double> busy;
  PredictStep(problem, plan, &busy);
  const StepModel model = ModelOf(problem, plan);
  const auto same = [](const Row& row, const DevicePlan& p) {
    const auto key = [](const DevicePlan& x) {
      return std::tuple(x.used, x.compute, x.batch.micro_batch, x.batch.micro_steps,
                        x.batch.last_micro_batch, std::llround(x.share * 1e6));
    };
    return key(row.plan) == key(p);
  };
  std::vector<Row> rows;
  for (size_t d = 0; d < plan.devices.size(); ++d) {
    const DeviceProfile& device = problem.devices[d];
    const DevicePlan& p = plan.devices[d];
    const bool again = d > 0 && device.kind == problem.devices[d - 1].kind && same(rows.back(), p);
    if (!again) {
      Row row{device.name, 0, p, busy[d], device.memory, 0};
      if (p.used) {
        row.need = model.Memory(device.computes[static_cast<size_t>(p.compute)],
                                p.batch.micro_batch, p.share);
      }
      rows.push_back(row);
    }
    ++rows.back().count;
  }
  return rows;
}

std::string Bar(double part) {
  const int full = std::clamp(static_cast<int>(std::lround(part * kBarWidth)), 0, kBarWidth);
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) bar += i < full ? "#" : ".";
  return bar;
}

bool Recomputes(const PlanProblem& problem, size_t d, const DevicePlan& p) {
  return problem.devices[d].computes[static_cast<size_t>(p.compute)].recompute;
}

double TokensPerSecond(const PlanFindings& f, const HeteroPlan& plan) {
  return static_cast<double>(f.problem.global_batch * f.tokens_per_sample) / plan.seconds;
}

std::string RowInWords(const PlanProblem& problem, const HeteroPlan& plan, const Row& row,
                       size_t first) {
  const auto name = absl::StrFormat("  %-22s x%-3d", row.name, row.count);
  if (!row.plan.used) return name + "left out: with it a step would take longer\n";
  const RankBatch& b = row.plan.batch;
  const std::string batch =
      b.micro_steps == 0
          ? "none"
          : absl::StrFormat("%d x %d + %d", b.micro_batch, b.micro_steps - 1, b.last_micro_batch);
  const bool small = row.memory < int64_t{2} << 30;
  const double unit = small ? 1e6 : 1e9;
  return absl::StrFormat("%s %-14s %6.2f %%  %5.1f / %5.1f %s %-9s %s %3.0f %%\n", name, batch,
                         100 * row.plan.share, static_cast<double>(row.need) / unit,
                         static_cast<double>(row.memory) / unit, small ? "MB" : "GB",
                         Recomputes(problem, first, row.plan) ? "recompute" : "",
                         Bar(row.busy / plan.seconds), 100 * row.busy / plan.seconds);
}

/// Who the others wait for, and for how long all wait for the links.
std::string Bottleneck(const PlanProblem& problem, const HeteroPlan& plan) {
  std::vector<double> busy;
  PredictStep(problem, plan, &busy);
  const auto slowest = std::max_element(busy.begin(), busy.end());
  return absl::StrFormat(
      "bottleneck: %s, which computes for %.3f s of the step's %.3f s; the rest goes to "
      "communication that can't be hidden and to the optimizer\n",
      problem.devices[static_cast<size_t>(slowest - busy.begin())].name, *slowest, plan.seconds);
}

}  // namespace

std::string PlanTable(const PlanProblem& problem, const HeteroPlan& plan) {
  std::string text = absl::StrFormat("  %-22s %-4s %-14s %8s  %16s %-9s %s\n", "devices", "",
                                     "samples", "share", "memory", "", "busy");
  size_t first = 0;
  for (const Row& row : Rows(problem, plan)) {
    text += RowInWords(problem, plan, row, first);
    first += static_cast<size_t>(row.count);
  }
  return text;
}

std::string ReportInWords(const PlanFindings& f) {
  const HeteroPlan& best = f.best;
  const auto used = std::count_if(best.devices.begin(), best.devices.end(),
                                  [](const DevicePlan& p) { return p.used; });
  std::string text = absl::StrFormat(
      "%s parameters, %d samples of %d tokens a step, %d devices\n\n"
      "the plan: ZeRO stage %d on %d of them, %.3f s a step, %s\n",
      WithPrefix(static_cast<double>(f.problem.parameters()), ""), f.problem.global_batch,
      f.tokens_per_sample, f.problem.devices.size(), best.stage, used, best.seconds,
      WithPrefix(TokensPerSecond(f, best), "tokens/s"));
  text += PlanTable(f.problem, best) + Bottleneck(f.problem, best);
  text += absl::StrFormat(
      "host RAM for checkpoints in memory, two copies of each: %.1f GB over "
      "all nodes\n\n",
      kHostBytes * static_cast<double>(f.problem.parameters()) / 1e9);
  const auto line = [&](const std::string& name, const HeteroPlan& plan) {
    if (plan.devices.empty()) return absl::StrFormat("  %-26s does not fit\n", name);
    return absl::StrFormat("  %-26s stage %d  %9.3f s  %16s  %.3f of the plan's speed\n", name,
                           plan.stage, plan.seconds,
                           WithPrefix(TokensPerSecond(f, plan), "tokens/s"),
                           best.seconds / plan.seconds);
  };
  text += "what else there was\n";
  for (size_t i = 0; i < f.by_stage.size(); ++i) {
    text += line(absl::StrCat("the best at stage ", f.problem.stages[i]), f.by_stage[i]);
  }
  for (const Strategy& other : f.others) text += line(other.name, other.plan);
  return text;
}

std::string ReportAsJson(const PlanFindings& f) {
  const auto summary = [&](const HeteroPlan& plan) {
    Json json;
    if (plan.devices.empty()) return json;
    json = {{"stage", plan.stage},
            {"seconds", plan.seconds},
            {"tokens_per_second", TokensPerSecond(f, plan)}};
    return json;
  };
  Json json = summary(f.best);
  json["parameters"] = f.problem.parameters();
  json["host_bytes"] = kHostBytes * static_cast<double>(f.problem.parameters());
  size_t first = 0;
  for (const Row& row : Rows(f.problem, f.best)) {
    json["devices"].push_back({{"name", row.name},
                               {"count", row.count},
                               {"used", row.plan.used},
                               {"micro_batch", row.plan.batch.micro_batch},
                               {"micro_steps", row.plan.batch.micro_steps},
                               {"last_micro_batch", row.plan.batch.last_micro_batch},
                               {"share", row.plan.share},
                               {"recompute", Recomputes(f.problem, first, row.plan)},
                               {"busy_seconds", row.busy},
                               {"memory", row.memory},
                               {"needs", row.need}});
    first += static_cast<size_t>(row.count);
  }
  for (const HeteroPlan& plan : f.by_stage) json["by_stage"].push_back(summary(plan));
  for (const Strategy& other : f.others) json["others"][other.name] = summary(other.plan);
  return json.dump();
}

TrainPlan ToTrainPlan(const PlanProblem& problem, const HeteroPlan& plan) {
  TrainPlan train;
  train.zero_stage = plan.stage;
  for (size_t d = 0; d < plan.devices.size(); ++d) {
    if (!plan.devices[d].used) continue;
    train.batches.ranks.push_back(plan.devices[d].batch);
    train.shares.push_back(plan.devices[d].share);
    train.recompute.push_back(Recomputes(problem, d, plan.devices[d]));
  }
  return train;
}

}  // namespace pando
