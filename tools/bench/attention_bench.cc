// Times attention on the CPU at the shape of GPT-2 124M: 12 causal heads of 64.
// compare_attention.py sets it beside PyTorch's.
//
// GF/s count the products under the causal mask: two forward, five backward. With --interactive, a
// case comes in a line ("bf16 backward BATCH QUERIES KEYS DROPOUT") and its best seconds go out in
// one.

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
#include "engine/types.h"
#include "ops/cpu/attention_cpu.h"
#include "ops/kernels/attention.h"
#include "tools/bench/timing.h"

namespace pando {
namespace {

constexpr int64_t kHeads = 12;
constexpr int64_t kDim = 64;
constexpr int64_t kWidth = kHeads * kDim;

struct Options {
  int threads = 0;
  double seconds = 0.2;
  Clock clock = Clock::kWall;
  bool json = false;
  bool interactive = false;
};

struct Case {
  DType dtype = DType::kF32;
  bool backward = false;
  int64_t batch = 1, queries = 1, keys = 1;
  double dropout = 0;
};

// As rows of `length` to a sample, `width` elements each.
AttentionRows Rows(Buffer& buffer, int64_t length, int64_t width) {
  return {buffer.data(), length * width, width};
}
ConstAttentionRows ConstRows(Buffer& buffer, int64_t length, int64_t width) {
  return {buffer.data(), length * width, width};
}

AttentionShape ShapeOf(const Case& c, const int64_t* sample_ids) {
  return {.dtype = c.dtype,
          .batch = c.batch,
          .query_heads = kHeads,
          .kv_heads = kHeads,
          .query_length = c.queries,
          .key_length = c.keys,
          .head_dim = kDim,
          .scale = 0.125,
          .dropout = c.dropout,
          .random = {.seed = 1, .site = 2, .step = 3},
          .sample_ids = sample_ids};
}

double BestSeconds(const Case& c, const Options& options) {
  const AttentionKernels& kernels = CpuAttentionKernels();
  const std::vector<int64_t> ids(c.batch, 7);
  const AttentionShape shape = ShapeOf(c, ids.data());
  Buffer qkv(c.dtype, c.batch * c.keys * 3 * kWidth);
  Buffer out(c.dtype, c.batch * c.keys * kWidth);
  Buffer lse(DType::kF32, c.batch * kHeads * c.queries);
  Buffer scratch(
      DType::kF32,
      std::max(kernels.forward_scratch_bytes(shape), kernels.backward_scratch_bytes(shape)) / 4);
  const auto in = SplitPackedQkv(shape, ConstRows(qkv, c.keys, 3 * kWidth));
  const AttentionForwardArgs forward{.shape = shape,
                                     .q = in.q,
                                     .k = in.k,
                                     .v = in.v,
                                     .out = Rows(out, c.keys, kWidth),
                                     .lse = lse.data(),
                                     .scratch = scratch.data(),
                                     .scratch_bytes = kernels.forward_scratch_bytes(shape)};
  const auto run_forward = [&] { kernels.forward(forward, nullptr); };
  if (!c.backward) return BestOf(options.seconds, options.clock, run_forward);
  run_forward();
  Buffer dout(c.dtype, c.batch * c.keys * kWidth);
  Buffer dqkv(c.dtype, c.batch * c.keys * 3 * kWidth);
  const auto gradients = SplitPackedQkv(shape, Rows(dqkv, c.keys, 3 * kWidth));
  const AttentionBackwardArgs backward{.shape = shape,
                                       .q = in.q,
                                       .k = in.k,
                                       .v = in.v,
                                       .out = ConstRows(out, c.keys, kWidth),
                                       .dout = ConstRows(dout, c.keys, kWidth),
                                       .lse = lse.data(),
                                       .dq = gradients.q,
                                       .dk = gradients.k,
                                       .dv = gradients.v,
                                       .scratch = scratch.data(),
                                       .scratch_bytes = kernels.backward_scratch_bytes(shape)};
  return BestOf(options.seconds, options.clock, [&] { kernels.backward(backward, nullptr); });
}

double Gflop(const Case& c) {
  const auto pairs = static_cast<double>(c.queries * (2 * c.keys - c.queries + 1)) / 2;
  return (c.backward ? 5 : 2) * 2e-9 * static_cast<double>(c.batch * kWidth) * pairs;
}

int Interactive(const Options& options) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string dtype, pass;
    Case c;
    words >> dtype >> pass >> c.batch >> c.queries >> c.keys >> c.dropout;
    if (!words || c.batch < 1 || c.queries < 1 || c.keys < c.queries) {
      std::cerr << "attention_bench: not a case: " << line << "\n";
      return 2;
    }
    c.dtype = dtype == "f32" ? DType::kF32 : DType::kBF16;
    c.backward = pass == "backward";
    std::cout << BestSeconds(c, options) << std::endl;
  }
  return 0;
}

void Report(const Case& c, const Options& options) {
  const double seconds = BestSeconds(c, options);
  const char* pass = c.backward ? "backward" : "forward";
  if (options.json) {
    std::cout << nlohmann::json{{"dtype", Name(c.dtype)},
                                {"pass", pass},
                                {"batch", c.batch},
                                {"queries", c.queries},
                                {"keys", c.keys},
                                {"dropout", c.dropout},
                                {"gflops", Gflop(c) / seconds},
                                {"seconds", seconds}}
              << std::endl;
    return;
  }
  std::cout << std::setw(4) << Name(c.dtype) << std::setw(9) << pass << " B=" << c.batch
            << " Tq=" << std::setw(4) << c.queries << " Tk=" << std::setw(4) << c.keys
            << " dropout " << std::setw(3) << c.dropout << std::fixed << std::setprecision(1)
            << std::setw(7) << Gflop(c) / seconds << " GF/s" << std::setprecision(3)
            << std::setw(10) << seconds * 1e3 << " ms" << std::defaultfloat << std::endl;
}

int Main(const Options& options) {
  if (options.threads > 0) SetNumThreads(options.threads);
  if (options.interactive) return Interactive(options);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const double dropout : {0.0, 0.1}) {
      for (const bool backward : {false, true}) {
        Report({dtype, backward, 1, 1024, 1024, dropout}, options);
        Report({dtype, backward, 4, 64, 64, dropout}, options);
      }
    }
    Report({dtype, false, 1, 1, 1024, 0}, options);  // decoding
  }
  return 0;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) try {
  pando::Options options;
  CLI::App app("Times attention on the CPU at the shape of GPT-2 124M");
  app.add_option("--threads", options.threads, "threads; 0: OpenMP's choice");
  app.add_option("--seconds", options.seconds, "repeats each case so long; the best counts");
  app.add_flag_callback(
      "--cpu-time", [&] { options.clock = pando::Clock::kProcessor; },
      "counts processor time, not the wall's");
  app.add_flag("--json", options.json, "one JSON object a line");
  app.add_flag("--interactive", options.interactive, "reads cases from standard input");
  CLI11_PARSE(app, argc, argv);
  return pando::Main(options);
} catch (const std::exception& e) {
  std::cerr << "attention_bench: " << e.what() << "\n";
  return 1;
}
