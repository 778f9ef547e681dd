// Initial values: GPT-2's own for its sizes, larger ones for narrower models.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/cpu/cpu_device.h"
#include "engine/error.h"
#include "engine/flat_parameters.h"
#include "engine/module.h"
#include "models/gpt.h"

namespace pando {
namespace {

/// Checks mean and standard deviation of every matrix: std, or for projections onto the residual
/// stream std / sqrt(2 layers).
void ExpectStd(const GptConfig& config, double std) {
  ParameterRegistry registry;
  const Gpt model(registry.Root(), config);
  FlatParameters flat(registry, DType::kF32, CpuDevice());
  flat.Initialize(1);
  for (const Parameter* p : registry.parameters()) {
    if (p->shape().rank() != 2) continue;
    const bool residual = p->name().find("c_proj") != std::string::npos;
    const double want = residual ? std / std::sqrt(2.0 * static_cast<double>(config.layers)) : std;
    double sum = 0, squares = 0;
    const std::vector<float> values = flat.ReadParameter(*p);
    for (const double v : values) {
      sum += v;
      squares += v * v;
    }
    const auto n = static_cast<double>(values.size());
    // Five standard errors of n normal numbers: 1 / sqrt(n) for the mean, 1 / sqrt(2 n) for the
    // deviation, relative to it.
    EXPECT_NEAR(sum / n, 0, 5 * want / std::sqrt(n)) << p->name();
    EXPECT_NEAR(std::sqrt(squares / n), want, 5 * want / std::sqrt(2 * n)) << p->name();
  }
}

TEST(GptInitTest, Gpt2AsItIs) {
  ExpectStd({.vocab_size = 50, .context = 16, .layers = 1, .heads = 12, .width = 768}, 0.02);
  for (const std::string& preset : GptPresets()) {
    EXPECT_EQ(GptPreset(preset).InitStd(), 0.02) << preset;
  }
}

// 0.02 sqrt(768 / 128) = 0.02 sqrt(6).
TEST(GptInitTest, NarrowerModelsStartLarger) {
  ExpectStd({.vocab_size = 65, .context = 64, .layers = 4, .heads = 4, .width = 128},
            0.048989794855663562);
}

TEST(GptInitTest, AsGiven) {
  ExpectStd(
      {.vocab_size = 65, .context = 64, .layers = 2, .heads = 4, .width = 128, .init_std = 0.02},
      0.02);
  EXPECT_THROW((GptConfig{.init_std = -0.1}.Check()), InvalidArgument);
  EXPECT_THROW((GptConfig{.init_std = std::nan("")}.Check()), InvalidArgument);
}

}  // namespace
}  // namespace pando
