// How long planning takes for large clusters of eight kinds of GPUs.
#include <chrono>
#include <cstdio>

#include "dist/hetero/planner.h"
#include "dist/hetero/simulate.h"
#include "engine/error.h"

namespace pando {
namespace {

/// Nodes of eight, kinds in turn.
PlanProblem Large(int devices) {
  Cluster cluster;
  cluster.network = 12.5e9;
  const char* kinds[] = {"T4", "V100S-32", "A10", "L4", "L40S", "A100-40", "A100-80", "H100"};
  for (int n = 0; n < devices / 8; ++n) {
    ClusterNode node;
    node.gpu = *FindGpu(kinds[n % 8]);
    node.gpus = 8;
    cluster.nodes.push_back(node);
  }
  // Eight samples for each device.
  return Simulate(cluster, *FindShape("llama-1.1b"), int64_t{8} * devices, /*recompute=*/true);
}

int Main() {
  for (const int devices : {64, 1000, 10000}) {
    const PlanProblem problem = Large(devices);
    const auto start = std::chrono::steady_clock::now();
    const absl::StatusOr<HeteroPlan> plan = MakePlan(problem);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    Require(plan.ok(), std::string(plan.status().message()));
    std::printf("%6d devices: planned in %.3f s; stage %d, %.3f s a step\n", devices, took.count(),
                plan->stage, plan->seconds);
  }
  return 0;
}

}  // namespace
}  // namespace pando

int main() try { return pando::Main(); } catch (const std::exception& e) {
  std::fprintf(stderr, "plan_bench: %s\n", e.what());
  return 1;
}
