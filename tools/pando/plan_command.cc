#include <algorithm>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ckpt/atomic_file.h"
#include "dist/hetero/cluster_file.h"
#include "dist/hetero/planner.h"
#include "dist/hetero/simulate.h"
#include "engine/error.h"
#include "tools/pando/commands.h"
#include "tools/pando/plan_report.h"
#include "tools/pando/rank_options.h"
#include "tools/pando/saved_model.h"

namespace pando {
namespace {

struct Options {
  std::string cluster, model = "llama-1.1b", tokens = "2M", stages = "0,1,2,3", out;
  bool no_recompute = false;
  bool json = false;
};

/// "2M", "500k" or "1048576".
int64_t ParseCount(const char* option, const std::string& text) {
  std::string digits = text;
  double factor = 1;
  if (!digits.empty() && (digits.back() == 'k' || digits.back() == 'K')) factor = 1e3;
  if (!digits.empty() && digits.back() == 'M') factor = 1e6;
  if (factor > 1) digits.pop_back();
  double value = 0;
  Require(absl::SimpleAtod(digits, &value) && value > 0 && value * factor < 1e15, option, " ", text,
          ": give a number above 0, as 2M, 500k or 1048576");
  return static_cast<int64_t>(value * factor);
}

std::vector<MeasuredProfile> ReadProfiles(const Cluster& cluster) {
  std::vector<MeasuredProfile> profiles;
  for (const ClusterNode& node : cluster.nodes) {
    const absl::StatusOr<MeasuredProfile> profile =
        ParseProfile(ValueOrThrow(ReadFile(node.profile, int64_t{1} << 20)));
    Require(profile.ok(), node.profile, ": ", std::string(profile.status().message()));
    profiles.push_back(*profile);
  }
  return profiles;
}

/// Reads the cluster; sets tokens_per_sample and the problem.
void Describe(const Options& o, PlanFindings& f) {
  const absl::StatusOr<Cluster> cluster =
      ParseCluster(ValueOrThrow(ReadFile(o.cluster, int64_t{1} << 20)));
  Require(cluster.ok(), "--cluster ", o.cluster, ": ", std::string(cluster.status().message()));
  const auto measured = std::count_if(cluster->nodes.begin(), cluster->nodes.end(),
                                      [](const ClusterNode& n) { return !n.profile.empty(); });
  Require(measured == 0 || measured == static_cast<int64_t>(cluster->nodes.size()), "--cluster ",
          o.cluster, ": either all nodes have a profile or none");
  const std::vector<MeasuredProfile> profiles =
      measured > 0 ? ReadProfiles(*cluster) : std::vector<MeasuredProfile>();
  absl::StatusOr<TransformerShape> shape;
  if (measured == 0) {
    shape = FindShape(o.model);
    Require(shape.ok(), "--model: ", std::string(shape.status().message()));
  }
  f.tokens_per_sample = measured > 0 ? profiles[0].length : shape->context;
  const int64_t samples = ParseCount("--global-tokens", o.tokens) / f.tokens_per_sample;
  Require(samples > 0, "--global-tokens ", o.tokens, ": a sample has ", f.tokens_per_sample);
  if (measured > 0) {
    const absl::StatusOr<PlanProblem> problem = FromProfiles(*cluster, profiles, samples);
    Require(problem.ok(), "--cluster ", o.cluster, ": ", std::string(problem.status().message()));
    f.problem = *problem;
  } else {
    f.problem = Simulate(*cluster, *shape, samples, !o.no_recompute);
  }
  f.problem.stages.clear();
  for (const double stage : ParseList("--zero-stage", o.stages)) {
    Require(stage == 0 || stage == 1 || stage == 2 || stage == 3, "--zero-stage ", o.stages,
            ": there are 0 to 3");
    f.problem.stages.push_back(static_cast<int>(stage));
  }
}

int RunPlan(const Options& o) {
  PlanFindings f;
  Describe(o, f);
  absl::StatusOr<HeteroPlan> best = MakePlan(f.problem);
  if (!best.ok()) throw OutOfMemory(std::string(best.status().message()));
  f.best = *std::move(best);
  for (const int stage : f.problem.stages) {
    PlanProblem one = f.problem;
    one.stages = {stage};
    f.by_stage.push_back(MakePlan(one).value_or(HeteroPlan{}));
  }
  f.others = OtherStrategies(f.problem);
  if (!o.out.empty()) {
    const absl::Status written =
        WriteFileAtomically(o.out, FormatPlan(ToTrainPlan(f.problem, f.best)));
    Require(written.ok(), "--out ", o.out, ": ", std::string(written.message()));
  }
  std::cout << (o.json ? ReportAsJson(f) + "\n" : ReportInWords(f));
  return kDone;
}

}  // namespace

Command AddPlanCommand(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = AddCommand(app, "plan",
                           "show how a model would be trained on a cluster of mixed GPUs that is "
                           "only described, and what other ways would cost");
  c->add_option("--cluster", o->cluster,
                "TOML: network_gbit, and for each [[node]] gpu (or profile, a file of pando "
                "profile), gpus, count, memory_gb, link_gbit")
      ->required();
  c->add_option("--model", o->model, "of those that are described; profiles name their own")
      ->capture_default_str();
  c->add_option("--global-tokens", o->tokens, "of a step: as 2M, 500k or 1048576")
      ->capture_default_str();
  c->add_option("--zero-stage", o->stages, "to choose from")->capture_default_str();
  c->add_flag("--no-recompute", o->no_recompute, "keep all activations");
  c->add_option("--out", o->out, "file to write the plan to, for pando train --plan");
  c->add_flag("--json", o->json, "print one line of JSON");
  return {c, [o] { return RunPlan(*o); }};
}

}  // namespace pando
