// How near a training step of a GPT is to its floor: the time that its matrix products take, each
// alone at its own shape, and that AdamW's bytes take at the bandwidth of the memory. Everything is
// timed in turn, round by round, so that a change of the processor's pace meets all alike.
//
//   floor_bench --precision bf16 --context 1024 --micro-batch 1

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <iomanip>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/cpu/parallel.h"
#include "engine/cpu/vector_kernels_cpu.h"
#include "engine/error.h"
#include "tools/bench/gpt_products.h"
#include "tools/bench/gpt_step.h"
#include "tools/bench/timing.h"

namespace pando {
namespace {

struct Options {
  GptStepOptions step;
  int rounds = 5;
  int threads = 2;
  bool json = false;
};

// Calls of each product in a round, of which the best counts: what is alone shall be at its best.
constexpr int kCalls = 3;

// Moves memory as AdamW does, read and written in place: y += a x over arrays that no cache holds.
class Triad {
 public:
  void Run() {
    CpuVectorKernels().axpy(
        {y_.data(), DType::kF32, x_.data(), DType::kF32, kElements, 1e-3, nullptr}, nullptr);
  }
  static double Bytes() { return 12.0 * kElements; }

 private:
  static constexpr int64_t kElements = int64_t{1} << 26;
  Buffer x_{DType::kF32, kElements};
  Buffer y_{DType::kF32, kElements};
};

// What AdamW moves: gradients, masters and two moments read, the latter three written, and the copy
// that is computed with.
double AdamWBytes(GptStep& step, DType dtype) {
  const int64_t per_element = 16 + 12 + (dtype == DType::kF32 ? 0 : SizeOf(dtype));
  return static_cast<double>(step.parameters().layout().size() * per_element);
}

// A product, and what its layers cost together in each round.
struct TimedProduct {
  TimedProduct(const GptLayer& layer, const std::string& form, const GptStepOptions& step)
      : name(layer.name + " " + form),
        count(layer.count),
        product(layer, form, step.dtype(), step.tokens()) {}

  std::string name;
  int64_t count;
  GptProduct product;
  std::vector<double> seconds;  // of one, by round
};

// What one round, or the best of all, has come to, in seconds.
struct Times {
  double step = 0;
  double products = 0;
  double optimizer = 0;
  double Ratio() const { return step / (products + optimizer); }
};

class FloorBench {
 public:
  explicit FloorBench(const Options& options) : o_(options), step_(o_.step) {
    for (const GptLayer& layer : GptLayers(o_.step.model)) {
      // A step with one micro-batch adds to no earlier gradient: no "dw+".
      for (const char* form : {"fwd", "dx", "dw"}) products_.emplace_back(layer, form, o_.step);
    }
    // Allocations, first touches, what oneDNN makes once.
    step_.Run();
    step_.Run();
    for (TimedProduct& p : products_) p.product.Run();
    triad_.Run();
  }

  void Round() {
    step_seconds_.push_back(SecondsOf([&] { step_.Run(); }));
    for (TimedProduct& p : products_) {
      p.seconds.push_back(BestCall([&] { p.product.Run(); }));
    }
    triad_seconds_.push_back(BestCall([&] { triad_.Run(); }));
  }

  void Report() const {
    const Times best = At([](const std::vector<double>& rounds) {
      return *std::min_element(rounds.begin(), rounds.end());
    });
    std::vector<double> ratios;
    for (size_t round = 0; round < step_seconds_.size(); ++round) {
      ratios.push_back(
          At([&](const std::vector<double>& rounds) { return rounds[round]; }).Ratio());
    }
    if (o_.json) {
      PrintJson(best, Median(ratios));
    } else {
      PrintTable(best, Median(ratios));
    }
  }

 private:
  template <typename Run>
  static double BestCall(const Run& run) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kCalls; ++i) best = std::min(best, SecondsOf(run));
    return best;
  }

  // `pick` takes one number from those of all rounds.
  template <typename Pick>
  Times At(const Pick& pick) const {
    Times t;
    t.step = pick(step_seconds_);
    for (const TimedProduct& p : products_) {
      t.products += static_cast<double>(p.count) * pick(p.seconds);
    }
    t.optimizer = adamw_bytes_ / (Triad::Bytes() / pick(triad_seconds_));
    return t;
  }

  double Bandwidth(const Times& t) const { return adamw_bytes_ / t.optimizer; }

  void PrintJson(const Times& best, double median_ratio) const {
    nlohmann::ordered_json products;
    for (const TimedProduct& p : products_) {
      const double seconds = *std::min_element(p.seconds.begin(), p.seconds.end());
      products[p.name] = {
          {"count", p.count}, {"seconds", seconds}, {"gflops", p.product.Gflop() / seconds}};
    }
    const nlohmann::ordered_json out = {{"precision", o_.step.precision},
                                        {"tokens", o_.step.tokens()},
                                        {"context", o_.step.model.context},
                                        {"threads", NumThreads()},
                                        {"rounds", step_seconds_.size()},
                                        {"step_seconds", best.step},
                                        {"products_seconds", best.products},
                                        {"optimizer_seconds", best.optimizer},
                                        {"optimizer_bytes", adamw_bytes_},
                                        {"memory_bytes_per_second", Bandwidth(best)},
                                        {"ratio_best", best.Ratio()},
                                        {"ratio_median", median_ratio},
                                        {"products", products}};
    std::cout << out.dump() << "\n";
  }

  void PrintTable(const Times& best, double median_ratio) const {
    std::cout << std::fixed;
    for (const TimedProduct& p : products_) {
      const double seconds = *std::min_element(p.seconds.begin(), p.seconds.end());
      std::cout << std::left << std::setw(11) << p.name << std::right << std::setw(3) << p.count
                << " x" << std::setprecision(3) << std::setw(9) << 1e3 * seconds << " ms"
                << std::setprecision(0) << std::setw(6) << p.product.Gflop() / seconds << " GF/s\n";
    }
    std::cout << std::setprecision(1) << "products   " << 1e3 * best.products << " ms\n"
              << "AdamW      " << 1e3 * best.optimizer << " ms: " << adamw_bytes_ * 1e-9
              << " GB at " << Bandwidth(best) * 1e-9 << " GB/s\n"
              << "step       " << 1e3 * best.step << " ms\n"
              << std::setprecision(3) << "step / floor: " << best.Ratio() << " (best), "
              << median_ratio << " (median of " << step_seconds_.size() << " rounds)\n";
  }

  Options o_;
  GptStep step_;
  std::deque<TimedProduct> products_;  // in place: they don't move
  Triad triad_;
  double adamw_bytes_ = AdamWBytes(step_, o_.step.dtype());
  std::vector<double> step_seconds_, triad_seconds_;  // by round
};

int Main(const Options& options) {
  Require(options.step.device == "cpu", "this times the CPU; for a GPU there is kernel_bench");
  SetNumThreads(options.threads);
  FloorBench bench(options);
  for (int round = 0; round < options.rounds; ++round) bench.Round();
  bench.Report();
  return 0;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) try {
  pando::Options o;
  CLI::App app("How near a training step is to the time of its matrix products and AdamW's bytes.");
  pando::AddGptStepOptions(app, o.step);
  app.add_option("--rounds", o.rounds)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads)->capture_default_str();
  app.add_flag("--json", o.json, "one line");
  CLI11_PARSE(app, argc, argv);
  return pando::Main(o);
} catch (const std::exception& e) {
  std::cerr << "floor_bench: " << e.what() << "\n";
  return 1;
}
