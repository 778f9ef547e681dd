// How much of the communication hides behind compute, at ZeRO stages 2 and 3. Compute is time
// slept, so that ranks (threads) don't compete for cores, and the link is a slow one: both are
// exact, and what is left over is the schedule's.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "dist/communicator/gloo_communicator.h"
#include "dist/launch/worker_environment.h"
#include "dist/store/store_client.h"
#include "dist/store/store_server.h"
#include "dist/zero/zero.h"
#include "engine/cpu/cpu_device.h"
#include "engine/error.h"
#include "engine/module.h"
#include "engine/tape.h"
#include "tools/bench/slow_communicator.h"
#include "tools/bench/timing.h"

namespace pando {
namespace {

struct Options {
  int units = 12;
  int ranks = 3;
  int steps = 5;
  int64_t elements = 65536;        ///< of a unit
  double forward_seconds = 0.008;  ///< of a unit; its backward takes twice as long
  SlowLink link;
  /// Of this rank, where each is a process on a network that is as slow as `link` says; empty:
  /// ranks are threads, and `link` is emulated.
  std::string interface;
};

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// A parameter and an operation on it that takes its time and changes nothing.
struct SleepyUnit : Module {
  SleepyUnit(const Scope& scope, const Options& o)
      : Module(scope),
        weight(scope, "weight", {o.elements}, Initializer::Zeros(), WeightDecay::kNo),
        unit{name(), {&weight}, false},
        seconds(o.forward_seconds) {}

  Tensor operator()(const Tensor& x) const {
    Sleep(seconds);
    Tensor y = Tensor::Empty(x.shape(), x.dtype(), x.device());
    y.CopyFrom(x);
    const Tensor& w = weight;
    if (Recording({&x, &w})) {
      Record("sleep", {&x, &w}, {&y}, [this](BackwardPass& pass) {
        Sleep(2 * seconds);
        pass.Target(1).tensor.SetZero();
        pass.Add(0, pass.Gradient());
      });
    }
    return y;
  }

  Parameter weight;
  Unit unit;
  double seconds;
};

struct Times {
  double step = 0;
  double compute = 0;
  double communication = 0;
  double unhidden = 0;  ///< the first unit's gather and the last one's reduction
  double Bound() const { return std::max(compute, communication - unhidden) + unhidden; }
};

Times Measure(const Options& o, Communicator& peers, int stage, bool overlap) {
  ParameterRegistry registry;
  ModuleList<SleepyUnit> model(registry.Root() / "unit", o.units, o);
  std::vector<Unit*> units;
  for (int64_t i = 0; i < model.size(); ++i) units.push_back(&model[i].unit);
  std::optional<SlowCommunicator> slow;
  if (o.interface.empty()) slow.emplace(peers, o.link);
  Communicator& communicator = slow ? static_cast<Communicator&>(*slow) : peers;
  Zero zero(registry, units, {.stage = stage, .overlap = overlap}, &communicator, CpuDevice());
  zero.Initialize(1);
  const auto forward_backward = [&] {
    Tensor x = Tensor::Zeros({1}, DType::kF32, CpuDevice());
    x.RequireGrad();
    for (int64_t i = 0; i < model.size(); ++i) {
      x = RunUnit(model[i].unit,
                  [&](const auto& in) { return std::vector<Tensor>{model[i](in[0])}; }, {x})[0];
    }
    Backward(x);
  };
  const auto step = [&] {
    zero.BeginStep();
    zero.MicroStep(forward_backward, true);
    zero.FinishGradients();
    zero.OptimizerStep(1e-3, 1, 0);
  };
  step();
  Times times;
  times.step = SecondsOf([&] {
                 for (int i = 0; i < o.steps; ++i) step();
                 // What is still on its way belongs to these steps.
                 zero.Forward(nullptr);
               }) /
               o.steps;
  times.compute = 3 * o.forward_seconds * o.units;
  for (int u = 0; u < zero.schedule().units(); ++u) {
    // A collective takes as long as its busiest rank: to gather or to reduce it sends all but the
    // part of one rank, which for most ranks is nothing, as a unit lies in one or two intervals.
    const std::vector<int64_t> counts = zero.shards().Counts(zero.schedule().unit(u).interval);
    const double one =
        o.link.Seconds(4 * (o.elements - *std::min_element(counts.begin(), counts.end())), o.ranks);
    const int gathers = stage == 3 ? zero.schedule().Gathers(u, true) : 1;
    times.communication += one * (gathers + 1);
    if (u == 0) times.unhidden = 2 * one;
  }
  peers.Barrier();
  return times;
}

/// One rank's part; a line per stage from rank 0.
void RunRank(const Options& o, const GlooOptions& gloo) {
  const auto peers = NewGlooCommunicator(gloo, CpuDevice());
  nlohmann::ordered_json out;
  for (const int stage : {2, 3}) {
    const Times with = Measure(o, *peers, stage, true);
    const Times without = Measure(o, *peers, stage, false);
    out["stage " + std::to_string(stage)] = {{"compute", with.compute},
                                             {"communication", with.communication},
                                             {"bound", with.Bound()},
                                             {"step", with.step},
                                             {"over_bound", with.step / with.Bound()},
                                             {"step_without_overlap", without.step}};
  }
  if (gloo.rank == 0) std::cout << out.dump() << "\n";
}

void RunThreads(const Options& o) {
  const std::string secret = NewSecret();
  auto server = StoreServer::Start({.secret = secret});
  Require(server.ok(), std::string(server.status().message()));
  std::vector<std::thread> ranks;
  ranks.reserve(static_cast<size_t>(o.ranks));
  for (int rank = 0; rank < o.ranks; ++rank) {
    ranks.emplace_back([&, rank] {
      auto client = StoreClient::Connect({.endpoints = {(*server)->url()}, .secret = secret});
      GlooOptions gloo;
      gloo.rank = rank;
      gloo.size = o.ranks;
      gloo.store = client->get();
      gloo.secret = secret;
      RunRank(o, gloo);
    });
  }
  for (std::thread& r : ranks) r.join();
}

/// As one of those that `pando launch` has started.
void RunProcess(Options o) {
  const auto environment = FindWorkerEnvironment();
  Require(environment.ok(), std::string(environment.status().message()));
  auto client =
      StoreClient::Connect({.endpoints = {environment->store}, .secret = environment->secret});
  Require(client.ok(), std::string(client.status().message()));
  o.ranks = environment->world_size;
  GlooOptions gloo;
  gloo.rank = environment->rank;
  gloo.size = o.ranks;
  gloo.store = client->get();
  gloo.secret = environment->secret;
  gloo.address = o.interface;
  RunRank(o, gloo);
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) try {
  pando::Options o;
  CLI::App app("How much of ZeRO's communication hides behind compute.");
  app.add_option("--units", o.units)->capture_default_str();
  app.add_option("--ranks", o.ranks)->capture_default_str();
  app.add_option("--steps", o.steps)->capture_default_str();
  app.add_option("--elements", o.elements, "of a unit")->capture_default_str();
  app.add_option("--forward-seconds", o.forward_seconds, "of a unit")->capture_default_str();
  app.add_option("--latency", o.link.latency, "seconds a hop")->capture_default_str();
  app.add_option("--bandwidth", o.link.bytes_per_second, "bytes a second")->capture_default_str();
  app.add_option("--interface", o.interface,
                 "this rank's address, where pando launch has started it on a network that is as "
                 "slow as --bandwidth says: see shaped_overlap.py");
  CLI11_PARSE(app, argc, argv);
  o.interface.empty() ? pando::RunThreads(o) : pando::RunProcess(o);
} catch (const std::exception& e) {
  std::cerr << "overlap_bench: " << e.what() << "\n";
  return 1;
}
