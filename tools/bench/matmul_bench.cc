// Times the matrix products of a GPT-2 124M training step, each alone: forward, gradient of the
// input, gradient of the weight (in f32, added to what is there). compare_matmul.py sets them
// beside PyTorch's.
//
// With --interactive, a case comes in a line ("bf16 fc dw 256") and its best seconds go out in one.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/cpu/parallel.h"
#include "tools/bench/gpt_products.h"

namespace pando {
namespace {

struct Options {
  std::vector<int64_t> tokens = {256, 1024};
  std::vector<std::string> dtypes = {"f32", "bf16"};
  int threads = 0;
  double seconds = 0.2;
  Clock clock = Clock::kWall;
  bool json = false;
  bool interactive = false;
};

double BestSeconds(const GptProduct& product, const Options& options) {
  return BestOf(options.seconds, options.clock, [&] { product.Run(); });
}

DType ParseDType(const std::string& name) { return name == "f32" ? DType::kF32 : DType::kBF16; }

int Interactive(const Options& options) {
  const std::vector<GptLayer> layers = GptLayers(GptPreset("gpt2-124m"));
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string dtype, name, form;
    int64_t tokens = 0;
    words >> dtype >> name >> form >> tokens;
    const auto layer = std::find_if(layers.begin(), layers.end(),
                                    [&](const GptLayer& l) { return name == l.name; });
    if (layer == layers.end() || tokens <= 0) {
      std::cerr << "matmul_bench: not a case: " << line << "\n";
      return 2;
    }
    const GptProduct product(*layer, form, ParseDType(dtype), tokens);
    std::cout << BestSeconds(product, options) << std::endl;
  }
  return 0;
}

void Report(const GptLayer& layer, const std::string& form, DType dtype, int64_t tokens,
            const Options& options) {
  const GptProduct product(layer, form, dtype, tokens);
  const MatmulArgs& args = product.args();
  const double seconds = BestSeconds(product, options);
  const double gflops = product.Gflop() / seconds;
  if (options.json) {
    std::cout << nlohmann::json{{"dtype", Name(dtype)}, {"tokens", tokens}, {"layer", layer.name},
                                {"form", form},         {"m", args.m},      {"n", args.n},
                                {"k", args.k},          {"gflops", gflops}, {"seconds", seconds}}
              << std::endl;
    return;
  }
  std::cout << std::setw(4) << Name(dtype) << std::setw(6) << tokens << " tokens  " << std::setw(6)
            << layer.name << std::setw(4) << form << std::setw(7) << args.m << " x " << std::setw(5)
            << args.n << " x " << std::setw(5) << args.k << std::fixed << std::setprecision(0)
            << std::setw(6) << gflops << " GF/s" << std::setprecision(3) << std::setw(9)
            << seconds * 1e3 << " ms" << std::endl;
}

int Main(const Options& options) {
  if (options.threads > 0) SetNumThreads(options.threads);
  if (options.interactive) return Interactive(options);
  for (const std::string& dtype : options.dtypes) {
    for (const int64_t tokens : options.tokens) {
      for (const GptLayer& layer : GptLayers(GptPreset("gpt2-124m"))) {
        for (const std::string& form : kProductForms)
          Report(layer, form, ParseDType(dtype), tokens, options);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) try {
  pando::Options options;
  CLI::App app("Times the matrix products of a GPT-2 124M training step, each alone");
  app.add_option("--tokens", options.tokens, "tokens in a micro-batch")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--dtypes", options.dtypes, "element types")
      ->delimiter(',')
      ->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--threads", options.threads, "threads; 0: OpenMP's choice");
  app.add_option("--seconds", options.seconds, "repeats each product so long; the best counts");
  app.add_flag_callback(
      "--cpu-time", [&] { options.clock = pando::Clock::kProcessor; },
      "counts processor time, not the wall's");
  app.add_flag("--json", options.json, "one JSON object a line");
  app.add_flag("--interactive", options.interactive, "reads cases from standard input");
  CLI11_PARSE(app, argc, argv);
  return pando::Main(options);
} catch (const std::exception& e) {
  std::cerr << "matmul_bench: " << e.what() << "\n";
  return 1;
}
