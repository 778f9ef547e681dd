// Times the matrix products of a GPT-2 124M training step, each alone: forward, gradient of the
// input, gradient of the weight (in f32, added to what is there). compare_matmul.py sets them
// beside PyTorch's.
//
// With --interactive, a case comes in a line ("bf16 fc dw 256") and its best seconds go out in one.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <iomanip>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/cpu/parallel.h"
#include "ops/cpu/matmul_cpu.h"

namespace pando {
namespace {

struct Options {
  std::vector<int64_t> tokens = {256, 1024};
  std::vector<std::string> dtypes = {"f32", "bf16"};
  int threads = 0;
  double seconds = 0.2;
  bool cpu_time = false;
  bool json = false;
  bool interactive = false;
};

struct Layer {
  const char* name;
  int64_t in;
  int64_t out;
  bool out_in;  // the weight is stored [out, in]
};

constexpr Layer kLayers[] = {{"qkv", 768, 2304, false},
                             {"proj", 768, 768, false},
                             {"fc", 768, 3072, false},
                             {"fcproj", 3072, 768, false},
                             {"head", 768, 50304, true}};
constexpr const char* kForms[] = {"fwd", "dx", "dw", "dw+"};

// y = x W + bias, dx = dy W^T, dW = x^T dy, dW += x^T dy; or with W^T for W.
MatmulArgs Case(const Layer& layer, const std::string& form, DType dtype, int64_t tokens) {
  MatmulArgs args = {};
  args.input_dtype = dtype;
  args.output_dtype = dtype;
  args.batch = 1;
  if (form == "fwd") {
    args.m = tokens;
    args.n = layer.out;
    args.k = layer.in;
    args.transpose_b = layer.out_in;
  } else if (form == "dx") {
    args.m = tokens;
    args.n = layer.in;
    args.k = layer.out;
    args.transpose_b = !layer.out_in;
  } else {
    args.m = layer.out_in ? layer.out : layer.in;
    args.n = layer.out_in ? layer.in : layer.out;
    args.k = tokens;
    args.transpose_a = true;
    args.accumulate = form == "dw+";
    args.output_dtype = DType::kF32;
  }
  args.lda = args.transpose_a ? args.m : args.k;
  args.ldb = args.transpose_b ? args.k : args.n;
  args.ldc = args.n;
  return args;
}

// Memory full of small numbers.
class Buffer {
 public:
  Buffer(DType dtype, int64_t elements)
      : data_(
            static_cast<char*>(std::aligned_alloc(64, (elements * SizeOf(dtype) / 64 + 1) * 64))) {
    for (int64_t i = 0; i < elements; ++i) {
      const float x = static_cast<float>(i * 7919 % 1000 - 500) * 1e-3f;
      if (dtype == DType::kF32) {
        reinterpret_cast<float*>(data_.get())[i] = x;
      } else {
        reinterpret_cast<BFloat16*>(data_.get())[i] = ToBFloat16(x);
      }
    }
  }
  void* data() { return data_.get(); }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> data_;
};

// Seconds of some clock: the wall's, or the processor time of all threads divided by their number,
// which a busy neighbour disturbs less.
double Now(bool cpu_time) {
  if (cpu_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC / NumThreads();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double BestSeconds(MatmulArgs args, bool bias, const Options& options) {
  const MatmulKernels& kernels = CpuMatmulKernels();
  Buffer a(args.input_dtype, args.m * args.k);
  Buffer b(args.input_dtype, args.k * args.n);
  Buffer c(args.output_dtype, args.m * args.n);
  Buffer bias_row(args.input_dtype, args.n);
  args.a = a.data();
  args.b = b.data();
  args.c = c.data();
  args.bias = bias ? bias_row.data() : nullptr;
  args.scratch_bytes = kernels.scratch_bytes(args);
  Buffer scratch(DType::kF32, args.scratch_bytes / 4);
  args.scratch = scratch.data();
  double best = std::numeric_limits<double>::infinity();
  double total = 0;
  for (int run = 0; run < 4 || total < options.seconds; ++run) {
    const double start = Now(options.cpu_time);
    kernels.matmul(args, nullptr);
    const double took = Now(options.cpu_time) - start;
    if (run == 0) continue;  // makes the primitive
    total += took;
    best = std::min(best, took);
  }
  return best;
}

double Run(const Layer& layer, const std::string& form, DType dtype, int64_t tokens,
           const Options& options) {
  const bool bias = form == "fwd" && !layer.out_in;
  return BestSeconds(Case(layer, form, dtype, tokens), bias, options);
}

DType ParseDType(const std::string& name) { return name == "f32" ? DType::kF32 : DType::kBF16; }

int Interactive(const Options& options) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string dtype, name, form;
    int64_t tokens = 0;
    words >> dtype >> name >> form >> tokens;
    const auto* layer = std::find_if(std::begin(kLayers), std::end(kLayers),
                                     [&](const Layer& l) { return name == l.name; });
    if (layer == std::end(kLayers) || tokens <= 0) {
      std::cerr << "matmul_bench: not a case: " << line << "\n";
      return 2;
    }
    std::cout << Run(*layer, form, ParseDType(dtype), tokens, options) << std::endl;
  }
  return 0;
}

void Report(const Layer& layer, const std::string& form, DType dtype, int64_t tokens,
            const Options& options) {
  const MatmulArgs args = Case(layer, form, dtype, tokens);
  const double seconds = Run(layer, form, dtype, tokens, options);
  const double gflops = 2e-9 * static_cast<double>(args.m * args.n * args.k) / seconds;
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
      for (const Layer& layer : kLayers) {
        for (const char* form : kForms) Report(layer, form, ParseDType(dtype), tokens, options);
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
  app.add_flag("--cpu-time", options.cpu_time, "counts processor time, not the wall's");
  app.add_flag("--json", options.json, "one JSON object a line");
  app.add_flag("--interactive", options.interactive, "reads cases from standard input");
  CLI11_PARSE(app, argc, argv);
  return pando::Main(options);
} catch (const std::exception& e) {
  std::cerr << "matmul_bench: " << e.what() << "\n";
  return 1;
}
