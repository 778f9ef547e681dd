// Times whole training steps of a GPT on random tokens: what compare_torch.py sets beside PyTorch.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/allocator.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "engine/random.h"
#include "engine/trace.h"
#include "models/gpt.h"
#include "train/train_step.h"

namespace pando {
namespace {

struct Options {
  GptConfig model;
  int64_t micro_batch = 4;
  int64_t steps = 10;
  int threads = 2;
  std::string precision = "f32";
  std::string profile;
  bool recompute = false;
  bool json = false;
};

int Main(const Options& o) {
  SetNumThreads(o.threads);
  ParameterRegistry registry;
  Gpt model(registry.Root(), o.model);
  model.SetRecompute(o.recompute);
  FlatParameters flat(registry, o.precision == "bf16" ? DType::kBF16 : DType::kF32, CpuDevice());
  flat.Initialize(1);
  TrainStep trainer(model, flat, {}, o.micro_batch, o.model.context);
  std::vector<int32_t> tokens(o.micro_batch * (o.model.context + 1));
  const RandomKey key{.seed = 1, .site = HashName("tokens"), .step = 0};
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(RandomBits(key, 0, i) % o.model.vocab_size);
  }
  const size_t n = static_cast<size_t>(o.micro_batch * o.model.context);
  std::vector<double> seconds;
  StepResult last;
  for (int64_t step = 0; step < o.steps + 2; ++step) {
    const HostBatch batch{step * o.micro_batch, o.micro_batch, o.model.context,
                          std::span<const int32_t>(tokens).first(n),
                          std::span<const int32_t>(tokens).subspan(1, n)};
    if (step == 2 && !o.profile.empty()) StartTrace();
    const auto start = std::chrono::steady_clock::now();
    last = trainer.Run(batch, {o.micro_batch}, step, 1e-4);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  if (!o.profile.empty()) {
    const absl::Status written = FinishTrace(o.profile);
    if (!written.ok()) throw Error(std::string(written.message()));
  }
  seconds.erase(seconds.begin(), seconds.begin() + 2);  // allocations, first-touch
  std::sort(seconds.begin(), seconds.end());
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  const double tokens_per_step = static_cast<double>(n);
  const nlohmann::json out = {{"step_seconds_best", seconds.front()},
                              {"step_seconds_median", seconds[seconds.size() / 2]},
                              {"tokens_per_second", tokens_per_step / seconds.front()},
                              {"model_flops_per_second", model.FlopsPerToken(o.model.context) *
                                                             tokens_per_step / seconds.front()},
                              {"peak_memory_bytes", int64_t{usage.ru_maxrss} * 1024},
                              {"peak_device_bytes", CpuDevice().allocator().stats().peak_reserved},
                              {"loss", last.loss},
                              {"parameters", registry.numel()}};
  std::cout << out.dump(o.json ? -1 : 2) << "\n";
  return 0;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  pando::Options o;
  o.model.context = 64;
  CLI::App app("Times training steps of a GPT on random tokens.");
  app.add_option("--layers", o.model.layers)->capture_default_str();
  app.add_option("--heads", o.model.heads)->capture_default_str();
  app.add_option("--width", o.model.width)->capture_default_str();
  app.add_option("--context", o.model.context)->capture_default_str();
  app.add_option("--vocab", o.model.vocab_size)->capture_default_str();
  app.add_option("--micro-batch", o.micro_batch)->capture_default_str();
  app.add_option("--steps", o.steps, "timed steps, after two that are not")->capture_default_str();
  app.add_option("--threads", o.threads)->capture_default_str();
  app.add_option("--precision", o.precision)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--profile", o.profile, "write a Chrome trace of the timed steps");
  app.add_flag("--recompute", o.recompute);
  app.add_flag("--json", o.json, "one line");
  CLI11_PARSE(app, argc, argv);
  try {
    return pando::Main(o);
  } catch (const std::exception& e) {
    std::cerr << "step_bench: " << e.what() << "\n";
    return 1;
  }
}
