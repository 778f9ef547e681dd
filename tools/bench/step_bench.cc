// Times whole training steps of a GPT on random tokens: what compare_torch.py sets beside PyTorch.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/allocator.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "engine/trace.h"
#include "tools/bench/gpt_step.h"
#include "tools/bench/timing.h"

namespace pando {
namespace {

struct Options {
  GptStepOptions step;
  int64_t steps = 10;
  int threads = 2;
  std::string profile;
  bool losses = false;
  bool json = false;
};

int Main(const Options& o) {
  SetNumThreads(o.threads);
  GptStep step(o.step);
  std::vector<double> losses;
  const auto run = [&] { losses.push_back(step.Run().loss); };
  for (int i = 0; i < 2; ++i) run();  // allocations, first touches
  if (!o.profile.empty()) StartTrace();
  std::vector<double> seconds;
  for (int64_t i = 0; i < o.steps; ++i) seconds.push_back(SecondsOf(run));
  if (!o.profile.empty()) {
    const absl::Status written = FinishTrace(o.profile);
    if (!written.ok()) throw Error(std::string(written.message()));
  }
  const double best = *std::min_element(seconds.begin(), seconds.end());
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  const auto tokens = static_cast<double>(o.step.tokens());
  const double flops = step.model().FlopsPerToken(o.step.model.context);
  nlohmann::json out = {{"device", step.device_note()},
                        {"step_seconds_best", best},
                        {"step_seconds_median", Median(seconds)},
                        {"tokens_per_second", tokens / best},
                        {"model_flops_per_token", flops},
                        {"model_flops_formula", step.model().FlopsFormula()},
                        {"model_flops_per_second", flops * tokens / best},
                        {"peak_memory_bytes", int64_t{usage.ru_maxrss} * 1024},
                        {"peak_device_bytes", step.device().allocator().stats().peak_reserved},
                        {"loss", losses.back()},
                        {"parameters", step.registry().numel()}};
  if (o.losses) out["losses"] = losses;
  std::cout << out.dump(o.json ? -1 : 2) << "\n";
  return 0;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) try {
  pando::Options o;
  CLI::App app("Times training steps of a GPT on random tokens.");
  pando::AddGptStepOptions(app, o.step);
  app.add_option("--steps", o.steps, "timed steps, after two that are not")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads)->capture_default_str();
  app.add_option("--profile", o.profile, "write a Chrome trace of the timed steps");
  app.add_flag("--losses", o.losses, "report the loss of every step");
  app.add_flag("--json", o.json, "one line");
  CLI11_PARSE(app, argc, argv);
  return pando::Main(o);
} catch (const std::exception& e) {
  std::cerr << "step_bench: " << e.what() << "\n";
  return 1;
}
