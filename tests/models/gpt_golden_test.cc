// A 2-layer GPT against PyTorch: loss, every parameter's gradient, 20 AdamW steps, with the values
// that tools/golden/make_gpt_golden.py has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "ckpt/safetensors.h"
#include "engine/cpu/cpu_device.h"
#include "models/gpt.h"
#include "train/train_step.h"

namespace pando {
namespace {

using Json = nlohmann::json;

const char kFolder[] = "tests/models/testdata/";

SafetensorsReader OpenTensors(const std::string& name) {
  auto reader = SafetensorsReader::Open(kFolder + name);
  if (!reader.ok()) throw std::runtime_error(std::string(reader.status().message()));
  return *std::move(reader);
}

template <typename T>
std::vector<T> Read(SafetensorsReader& reader, const std::string& name) {
  const TensorEntry* entry = reader.Find(name);
  if (entry == nullptr) throw std::runtime_error("no tensor " + name);
  int64_t n = 1;
  for (int64_t d : entry->shape) n *= d;
  std::vector<T> values(n);
  const absl::Status read = reader.Read<T>(name, 0, absl::MakeSpan(values));
  if (!read.ok()) throw std::runtime_error(std::string(read.message()));
  return values;
}

double Norm(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

class GptGolden : public ::testing::Test {
 protected:
  GptGolden() : file_(OpenTensors("gpt_golden.safetensors")) {
    std::ifstream(std::string(kFolder) + "gpt_golden.json") >> json_;
    const Json& c = json_["config"];
    config_.layers = c["layers"];
    config_.heads = c["heads"];
    config_.width = c["width"];
    config_.context = c["context"];
    config_.vocab_size = c["vocab"];
    tokens_ = Read<int32_t>(file_, "tokens");
    targets_ = Read<int32_t>(file_, "targets");
  }

  static constexpr int64_t kSamples = 3;

  HostBatch Batch(int64_t step) const {
    const int64_t n = kSamples * config_.context;
    return {step * kSamples, kSamples, config_.context, std::span(tokens_).subspan(step * n, n),
            std::span(targets_).subspan(step * n, n)};
  }

  struct Run {
    Run(const GptGolden& test, DType dtype)
        : model(registry.Root(), test.config_), flat(registry, dtype, CpuDevice()) {}
    ParameterRegistry registry;
    Gpt model;
    FlatParameters flat;
  };

  std::unique_ptr<Run> Load(DType dtype) {
    auto run = std::make_unique<Run>(*this, dtype);
    for (const Parameter* p : run->registry.parameters()) {
      run->flat.WriteParameter(*p, Read<float>(file_, "param." + p->name()));
    }
    if (dtype != DType::kF64) run->flat.ValuesFromMasters();
    return run;
  }

  /// Loss of batch 0, with its gradients left in place.
  double LossAndGradients(Run& run) const {
    const HostBatch batch = Batch(0);
    const Shape shape{batch.samples, batch.length};
    const auto counted =
        std::count_if(batch.targets.begin(), batch.targets.end(), [](int32_t t) { return t >= 0; });
    const Tensor loss = run.model.Loss(Tensor::FromHost(batch.tokens, shape, CpuDevice()),
                                       Tensor::FromHost(batch.targets, shape, CpuDevice()), {},
                                       1.0 / static_cast<double>(counted));
    const double value = loss.Item();
    Backward(loss);
    return value;
  }

  static std::vector<double> Gradient(const Parameter& p) {
    // Without padding rows.
    std::vector<double> g;
    if (p.grad().dtype() == DType::kF64) {
      g = p.grad().ToHost<double>();
    } else {
      for (float v : p.grad().ToHost<float>()) g.push_back(v);
    }
    g.resize(p.shape().numel());
    return g;
  }

  SafetensorsReader file_;
  Json json_;
  GptConfig config_;
  std::vector<int32_t> tokens_, targets_;
};

// In f64 both sides are the same arithmetic to 1e-16, grown by the depth of the sums. (The error
// functions of ops/math.h in f64 are libm's.)
TEST_F(GptGolden, GradientsInF64) {
  auto run = Load(DType::kF64);
  EXPECT_NEAR(LossAndGradients(*run), json_["loss"]["f64"], 1e-12);
  SafetensorsReader want_file = OpenTensors("gpt_golden_f64.safetensors");
  for (const Parameter* p : run->registry.parameters()) {
    const auto want = Read<double>(want_file, "grad." + p->name());
    std::vector<double> difference = Gradient(*p);
    for (size_t i = 0; i < want.size(); ++i) difference[i] -= want[i];
    EXPECT_LE(Norm(difference), 1e-11 * Norm(want)) << p->name();
  }
}

// f32: |a - b| <= 1e-5 |b| + 1e-7 |all gradients| per tensor, by norms. Also with blocks
// recomputed.
TEST_F(GptGolden, GradientsInF32) {
  for (const bool recompute : {false, true}) {
    auto run = Load(DType::kF32);
    run->model.SetRecompute(recompute);
    EXPECT_NEAR(LossAndGradients(*run), json_["loss"]["f64"], 2e-6);
    for (const Parameter* p : run->registry.parameters()) {
      const auto want_f32 = Read<float>(file_, "grad." + p->name());
      const std::vector<double> want(want_f32.begin(), want_f32.end());
      std::vector<double> difference = Gradient(*p);
      for (size_t i = 0; i < want.size(); ++i) difference[i] -= want[i];
      EXPECT_LE(Norm(difference),
                1e-5 * Norm(want) + 1e-7 * json_["grad_norm"]["f64"].get<double>())
          << p->name();
    }
  }
}

// bf16: cosine at least 0.999 and norm within 1 % of the f64 gradient.
TEST_F(GptGolden, GradientsInBf16) {
  auto run = Load(DType::kBF16);
  EXPECT_NEAR(LossAndGradients(*run), json_["loss"]["f64"], 5e-3);
  for (const Parameter* p : run->registry.parameters()) {
    const auto want_f32 = Read<float>(file_, "grad." + p->name());
    const std::vector<double> want(want_f32.begin(), want_f32.end());
    const std::vector<double> got = Gradient(*p);
    double dot = 0;
    for (size_t i = 0; i < want.size(); ++i) dot += want[i] * got[i];
    EXPECT_GE(dot, 0.999 * Norm(want) * Norm(got)) << p->name();
    EXPECT_NEAR(Norm(got), Norm(want), 0.01 * Norm(want)) << p->name();
  }
}

TEST_F(GptGolden, TwentyAdamWSteps) {
  const Json& o = json_["optimizer"];
  const auto losses = json_["training"]["f64"]["losses"].get<std::vector<double>>();
  const auto norms = json_["training"]["f64"]["grad_norms"].get<std::vector<double>>();
  for (const std::vector<int64_t>& cut : {std::vector<int64_t>{3}, std::vector<int64_t>{1, 2}}) {
    ParameterRegistry registry;
    Gpt model(registry.Root(), config_);
    const AdamWOptions adamw{o["beta1"], o["beta2"], o["eps"], o["weight_decay"]};
    Zero parameters(registry, model.units(), {.adamw = adamw}, nullptr, CpuDevice());
    for (const FlatLayout::Entry& e : parameters.layout().entries()) {
      parameters.WriteMasters(e.offset, Read<float>(file_, "param." + e.parameter->name()));
    }
    parameters.ValuesFromMasters();
    TrainStepOptions options;
    options.grad_clip = o["grad_clip"];
    TrainStep trainer(model, parameters, options, kSamples, config_.context);
    for (int64_t step = 0; step < static_cast<int64_t>(losses.size()); ++step) {
      const StepResult result = trainer.Run(Batch(step), cut, step, o["lr"]);
      EXPECT_NEAR(result.loss, losses[step], 1e-5) << step;
      EXPECT_NEAR(result.grad_norm, norms[step], 1e-5 * norms[step]) << step;
    }
  }
}

}  // namespace
}  // namespace pando
