// Each kernel of a GPT's training step against its floor: the bytes it has to move at the rate of a
// copy, and its operations at that of a large matrix product, both measured here first.
//
//   kernel_bench --device cuda --precision bf16

#include <CLI/CLI.hpp>
#include <functional>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/error.h"
#include "engine/random.h"
#include "engine/tape.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/gelu.h"
#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "tools/bench/timing.h"
#include "tools/pando/device_option.h"

namespace pando {
namespace {

struct Options {
  std::string device = "auto";
  std::string precision = "bf16";
  int64_t samples = 16;
  int64_t context = 1024;
  int64_t width = 768;
  int64_t heads = 12;
  int64_t vocab = 50304;
  int64_t parameters = 124475904;
  int64_t ceiling = 8192;    // rows and columns of the matrix product at full speed
  int64_t copied = 1 << 30;  // bytes copied at full speed
  double seconds = 0.2;
  bool json = false;
};

/// What a kernel has to do at least.
struct Work {
  double bytes = 0;
  double flops = 0;
};

using Op = std::function<Tensor(const std::vector<Tensor>&)>;

class KernelBench {
 public:
  explicit KernelBench(const Options& o)
      : o_(o),
        chosen_(ChooseDevice(o.device)),
        device_(*chosen_.device),
        dtype_(ChoosePrecision(o.precision, chosen_).dtype) {}

  void Run() {
    MeasureCeilings();
    MeasureProducts();
    MeasureRows();
    MeasureAttention();
    MeasureBasics();
    MeasureOptimizer();
  }

  void Report() const {
    if (o_.json) {
      const nlohmann::ordered_json out = {{"device", chosen_.note},
                                          {"precision", o_.precision},
                                          {"copy_bytes_per_second", copy_rate_},
                                          {"product_flops_per_second", product_rate_},
                                          {"kernels", kernels_}};
      std::cout << out.dump() << "\n";
      return;
    }
    std::cout << chosen_.note << "\n"
              << std::fixed << std::setprecision(1) << "copy " << copy_rate_ * 1e-9
              << " GB/s, product " << product_rate_ * 1e-12 << " TFLOP/s\n";
    for (const auto& k : kernels_) {
      std::cout << std::left << std::setw(28) << k["kernel"].get<std::string>() << std::right;
      if (k.contains("error")) {
        std::cout << "  " << k["error"].get<std::string>() << "\n";
        continue;
      }
      std::cout << std::setprecision(1) << std::setw(11) << 1e6 * k["seconds"].get<double>()
                << " us, floor" << std::setw(11) << 1e6 * k["floor_seconds"].get<double>()
                << " us, x" << std::setprecision(2) << k["ratio"].get<double>() << "\n";
    }
  }

 private:
  int64_t tokens() const { return o_.samples * o_.context; }
  double Element() const { return static_cast<double>(SizeOf(dtype_)); }
  static double Count(std::initializer_list<int64_t> sizes) {
    double count = 1;
    for (const int64_t s : sizes) count *= static_cast<double>(s);
    return count;
  }

  /// Small numbers without pattern: a matrix unit that multiplies zeros draws less power, and runs
  /// faster, than a training step's.
  Tensor Random(std::vector<int64_t> dims, DType dtype) {
    Tensor t = Tensor::Empty(Shape(std::move(dims)), dtype, device_, "operand");
    if (pattern_[dtype].empty()) {
      const RandomKey key{.seed = 1, .site = HashName("kernel_bench"), .step = 0};
      for (uint64_t i = 0; i < kPattern; ++i) {
        const float x = static_cast<float>(RandomBits(key, 0, i) % 2001) * 1e-3f - 1.0f;
        const auto* bytes = reinterpret_cast<const char*>(&x);
        const BFloat16 b = ToBFloat16(x);
        const Float16 h = ToFloat16(x);
        if (dtype == DType::kBF16) bytes = reinterpret_cast<const char*>(&b);
        if (dtype == DType::kF16) bytes = reinterpret_cast<const char*>(&h);
        pattern_[dtype].append(bytes, static_cast<size_t>(SizeOf(dtype)));
      }
    }
    const std::string& pattern = pattern_[dtype];
    auto* to = static_cast<char*>(t.mutable_data());
    const auto step = static_cast<int64_t>(pattern.size());
    for (int64_t at = 0; at < t.bytes(); at += step) {
      device_.current_stream().Copy(to + at, pattern.data(), std::min(step, t.bytes() - at),
                                    CopyKind::kHostToDevice);
    }
    return t;
  }
  Tensor Random(std::vector<int64_t> dims) { return Random(std::move(dims), dtype_); }

  Tensor Tokens() {
    std::vector<int32_t> ids(static_cast<size_t>(tokens()));
    const RandomKey key{.seed = 1, .site = HashName("tokens"), .step = 0};
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>(RandomBits(key, 0, i) % 50257);
    }
    return Tensor::FromHost(ids, {o_.samples, o_.context}, device_, "tokens");
  }

  /// Seconds of one run() among many that follow each other.
  double Seconds(const std::function<void()>& run) {
    run();
    device_.Synchronize();
    const auto many = [&](int64_t count) {
      return SecondsOf([&] {
        for (int64_t i = 0; i < count; ++i) run();
        device_.Synchronize();
      });
    };
    const double once = many(1);
    const auto count = static_cast<int64_t>(std::clamp(o_.seconds / 4 / once, 1.0, 1000.0));
    return BestOf(o_.seconds, Clock::kWall, [&] { many(count); }) / static_cast<double>(count);
  }

  void Note(const std::string& name, double seconds, const Work& work) {
    const double floor = std::max(work.bytes / copy_rate_, work.flops / product_rate_);
    kernels_.push_back({{"kernel", name},
                        {"seconds", seconds},
                        {"bytes", work.bytes},
                        {"flops", work.flops},
                        {"floor_seconds", floor},
                        {"ratio", seconds / floor}});
  }

  /// Where memory does not suffice, the kernel is noted as such.
  void Try(const std::string& name, const std::function<void()>& measure) {
    try {
      measure();
    } catch (const OutOfMemory& e) {
      kernels_.push_back({{"kernel", name}, {"error", "out of memory"}});
    }
  }

  void Measure(const std::string& name, const Work& work, const std::function<void()>& run) {
    Try(name, [&] { Note(name, Seconds(run), work); });
  }

  /// `op` without recording; then what backward adds to that, with the given gradient `dy` of its
  /// output (undefined: the output is a loss).
  void MeasureOp(const std::string& name, const std::vector<Tensor>& inputs, const Op& op,
                 const Tensor& dy, const Work& forward, const Work& backward) {
    Try(name, [&] {
      const double alone = Seconds([&] {
        const NoGrad no_grad;
        op(inputs);
      });
      Note(name, alone, forward);
      const double both = Seconds([&] {
        std::vector<Tensor> leaves;
        for (const Tensor& x : inputs) {
          leaves.push_back(x.Detach());
          if (IsFloating(x.dtype())) leaves.back().RequireGrad();
        }
        Tensor y = op(leaves);
        if (!dy.defined()) return Backward(y);
        Tensor loss = Tensor::Zeros({1}, DType::kF32, device_, "loss");
        Record("given", {&y}, {&loss}, [&dy](BackwardPass& pass) { pass.Add(0, dy); });
        Backward(loss);
      });
      Note(name + " backward", both - alone, backward);
    });
    device_.Synchronize();
    Tape::Current().Clear();
  }

  void MeasureCeilings() {
    Tensor x = Tensor::Zeros({o_.copied / 4}, DType::kI32, device_, "copied");
    Tensor y = Tensor::Zeros({o_.copied / 4}, DType::kI32, device_, "copy");
    copy_rate_ = 2.0 * static_cast<double>(x.bytes()) / Seconds([&] { y.CopyFrom(x); });
    const Tensor a = Random({o_.ceiling, o_.ceiling});
    const Tensor b = Random({o_.ceiling, o_.ceiling});
    const NoGrad no_grad;
    product_rate_ =
        2 * Count({o_.ceiling, o_.ceiling, o_.ceiling}) / Seconds([&] { Matmul(a, b); });
  }

  void MeasureLinear(const std::string& name, int64_t in, int64_t out, WeightLayout layout) {
    const bool in_out = layout == WeightLayout::kInOut;
    std::vector<Tensor> inputs = {Random({tokens(), in}),
                                  in_out ? Random({in, out}) : Random({out, in})};
    if (in_out) inputs.push_back(Random({out}));
    const Work once = {
        Element() * (Count({tokens(), in}) + Count({in, out}) + Count({tokens(), out})),
        2 * Count({tokens(), in, out})};
    MeasureOp(name, inputs,
              [layout](const std::vector<Tensor>& x) {
                return Linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), layout);
              },
              Random({tokens(), out}), once, {2 * once.bytes, 2 * once.flops});
  }

  void MeasureProducts() {
    const int64_t c = o_.width;
    MeasureLinear("linear qkv", c, 3 * c, WeightLayout::kInOut);
    MeasureLinear("linear proj", c, c, WeightLayout::kInOut);
    MeasureLinear("linear fc", c, 4 * c, WeightLayout::kInOut);
    MeasureLinear("linear fcproj", 4 * c, c, WeightLayout::kInOut);
    MeasureLinear("linear head", c, o_.vocab, WeightLayout::kOutIn);
  }

  void MeasureRows() {
    const int64_t c = o_.width;
    const double rows = Element() * Count({tokens(), c});  // bytes of [tokens, width]
    const Tensor x = Random({tokens(), c});
    const Tensor dy = Random({tokens(), c});
    const Tensor weight = Random({c});
    MeasureOp("layer_norm", {x, weight, weight},
              [](const std::vector<Tensor>& t) { return LayerNorm(t[0], t[1], t[2]); }, dy,
              {2 * rows}, {3 * rows});
    MeasureOp("residual_layer_norm", {x, dy, weight, weight},
              [](const std::vector<Tensor>& t) {
                return ResidualLayerNorm(t[0], t[1], t[2], t[3]).normalized;
              },
              dy, {4 * rows}, {3 * rows});
    MeasureOp("softmax", {x}, [](const std::vector<Tensor>& t) { return Softmax(t[0]); }, dy,
              {2 * rows}, {3 * rows});
    const Tensor wide = Random({tokens(), 4 * c});
    MeasureOp("bias_gelu", {wide, Random({4 * c})},
              [](const std::vector<Tensor>& t) { return BiasGelu(t[0], t[1]); },
              Random({tokens(), 4 * c}), {2 * 4 * rows}, {3 * 4 * rows});
    const Tensor ids = Tokens();
    MeasureOp("embedding", {Random({o_.vocab, c}), Random({o_.context, c})},
              [ids](const std::vector<Tensor>& t) { return PositionalEmbedding(ids, t[0], t[1]); },
              dy.Reshape({o_.samples, o_.context, c}), {2 * rows},
              {rows + Element() * Count({o_.vocab, c})});
    Try("cross_entropy", [&] {
      const double logits = Element() * Count({tokens(), o_.vocab});
      const Tensor targets = ids.Reshape({tokens()});
      Tensor given = Random({tokens(), o_.vocab});
      Measure("cross_entropy in place", {2 * logits}, [&] {
        Tensor leaf = given.Detach();
        CrossEntropyInPlace(leaf.RequireGrad(), targets, {.vocab = 50257});
        Tape::Current().Clear();
      });
    });
  }

  void MeasureAttention() {
    const int64_t c = o_.width;
    const double rows = Element() * Count({tokens(), c});
    // Two products over the half below the diagonal; backward has five, the first again.
    const double flops = 2 * Count({tokens(), o_.context, c});
    MeasureOp("attention", {Random({o_.samples, o_.context, 3 * c})},
              [heads = o_.heads](const std::vector<Tensor>& t) {
                return Attention(t[0], {.heads = heads});
              },
              Random({o_.samples, o_.context, c}), {4 * rows, flops}, {8 * rows, 2.5 * flops});
  }

  void MeasureBasics() {
    const double rows = Element() * Count({tokens(), o_.width});
    const Tensor x = Random({tokens(), o_.width});
    const Tensor y = Random({tokens(), o_.width});
    const Tensor heads = x.Reshape({o_.samples, o_.context, o_.heads, o_.width / o_.heads});
    const NoGrad no_grad;
    Measure("add", {3 * rows}, [&] { Add(x, y); });
    Measure("add a row", {2 * rows}, [&, row = Random({o_.width})] { Add(x, row); });
    Measure("tanh", {2 * rows}, [&] { Tanh(x); });
    Measure("sum of all", {rows}, [&] { Sum(x); });
    Measure("sum along rows", {rows}, [&] { Sum(x, {1}); });
    Measure("sum across rows", {rows}, [&] { Sum(x, {0}); });
    Measure("max along rows", {rows}, [&] { Max(x, {1}); });
    Measure("transpose", {2 * rows}, [&] { Transpose(x); });
    Measure("heads to the front", {2 * rows}, [&] { Permute(heads, {0, 2, 1, 3}); });
    Measure("slice of columns", {rows}, [&] { Slice(x, 1, 0, o_.width / 2); });
  }

  void MeasureOptimizer() {
    const int64_t n = o_.parameters;
    const VectorKernels& kernels = device_.vector_kernels();
    Try("adamw", [&] {
      Tensor p = Random({n}, DType::kF32), m = Random({n}, DType::kF32);
      Tensor v = Tensor::Zeros({n}, DType::kF32, device_), copy = Random({n});
      const Tensor g = Random({n}, DType::kF32);
      AdamWArgs args = {};
      args.p = p.mutable_data<float>();
      args.m = m.mutable_data<float>();
      args.v = v.mutable_data<float>();
      args.grad = g.data<float>();
      args.n = n;
      args.copy = copy.mutable_data();
      args.copy_dtype = dtype_;
      args.lr = 1e-4;
      args.beta1 = 0.9;
      args.beta2 = 0.95;
      args.eps = 1e-8;
      args.bias_correction1 = args.bias_correction2 = args.grad_scale = 1;
      const auto elements = static_cast<double>(n);
      Measure("adamw", {(16 + 12 + Element()) * elements},
              [&] { device_.current_stream().Launch(kernels.adamw, args); });
      Tensor out = Tensor::Zeros({1}, DType::kF64, device_);
      Tensor scratch = Tensor::Zeros({SumSquaresScratch(n)}, DType::kF64, device_);
      const SumSquaresArgs sum = {
          g.data(), DType::kF32, n, scratch.mutable_data<double>(), out.mutable_data<double>(),
          false};
      Measure("sum of squares", {4 * elements},
              [&] { device_.current_stream().Launch(kernels.sum_squares, sum); });
    });
  }

  static constexpr uint64_t kPattern = (1 << 20) - 3;

  Options o_;
  ChosenDevice chosen_;
  Device& device_;
  DType dtype_;
  std::map<DType, std::string> pattern_;
  double copy_rate_ = 0, product_rate_ = 0;
  std::vector<nlohmann::ordered_json> kernels_;
};

}  // namespace
}  // namespace pando

int main(int argc, char** argv) try {
  pando::Options o;
  CLI::App app("Each kernel of a GPT's training step against the bytes and operations it needs.");
  app.add_option("--device", o.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--precision", o.precision)->capture_default_str();
  app.add_option("--samples", o.samples)->capture_default_str();
  app.add_option("--context", o.context)->capture_default_str();
  app.add_option("--width", o.width)->capture_default_str();
  app.add_option("--heads", o.heads)->capture_default_str();
  app.add_option("--vocab", o.vocab)->capture_default_str();
  app.add_option("--parameters", o.parameters, "of AdamW")->capture_default_str();
  app.add_option("--ceiling", o.ceiling, "rows of the fastest product")->capture_default_str();
  app.add_option("--copied", o.copied, "bytes of the fastest copy")->capture_default_str();
  app.add_option("--seconds", o.seconds, "spent on each kernel")->capture_default_str();
  app.add_flag("--json", o.json, "one line");
  CLI11_PARSE(app, argc, argv);
  pando::KernelBench bench(o);
  bench.Run();
  bench.Report();
  return 0;
} catch (const std::exception& e) {
  std::cerr << "kernel_bench: " << e.what() << "\n";
  return 1;
}
