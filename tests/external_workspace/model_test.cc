// A language model of a program outside the tree, with an operation of its own, trained by Pando.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "engine/cpu/cpu_device.h"
#include "engine/tape.h"
#include "models/language_model.h"
#include "models/layers.h"
#include "ops/arithmetic.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "square.h"
#include "train/data.h"
#include "train/trainer.h"

namespace {

/// x^2, by the kernel of this workspace.
pando::Tensor OwnSquare(const pando::Tensor& x) {
  pando::Tensor y = pando::Tensor::Empty(x.shape(), x.dtype(), x.device(), "own square");
  x.device().current_stream().Launch(
      pando::CpuSquareKernels().forward,
      pando::SquareArgs{x.data<float>(), y.mutable_data<float>(), x.numel()});
  if (!pando::Recording({&x})) return y;
  pando::Record("own_square", {&x}, {&y}, [saved = pando::Saved(x)](pando::BackwardPass& pass) {
    pass.Add(0, pando::Mul(pando::Affine(saved.Get(), 2), pass.Gradient()));
  });
  return y;
}

/// Predicts the next token from the last one alone.
class BigramModel : public pando::LanguageModel {
 public:
  BigramModel(const pando::Scope& scope, int64_t vocab)
      : LanguageModel(scope),
        vocab_(vocab),
        embedding_(scope, "embedding", {vocab, 8}, pando::Initializer::Normal(0, 1),
                   pando::WeightDecay::kNo),
        head_(scope / "head", 8, vocab, /*std=*/0, /*with_bias=*/true) {}

  int64_t vocab_size() const override { return vocab_; }
  int64_t context() const override { return 16; }
  pando::Tensor Loss(const pando::Tensor& tokens, const pando::Tensor& targets,
                     const pando::StepContext& /*step*/, double scale) override {
    const pando::Tensor x = pando::Embedding(tokens, embedding_);
    return pando::CrossEntropyInPlace(head_(pando::Add(x, OwnSquare(x))), targets,
                                      {.scale = scale});
  }

 private:
  int64_t vocab_;
  pando::Parameter embedding_;
  pando::LinearLayer head_;
};

struct KeepLosses : pando::TrainerHooks {
  void OnStep(const pando::StepReport& report) override { losses.push_back(report.result.loss); }
  std::vector<double> losses;
};

TEST(Outside, AModelOfItsOwnLearns) {
  // After each letter always the same one.
  const std::string path = testing::TempDir() + "/alphabet.txt";
  std::ofstream text(path);
  for (int i = 0; i < 2600; ++i) text << static_cast<char>('a' + i % 26);
  text.close();
  const auto data = pando::LoadData({.path = path, .context = 16});
  ASSERT_TRUE(data.ok()) << data.status();

  pando::ParameterRegistry registry;
  BigramModel model(registry.Root(), data->vocab_size);
  pando::TrainerOptions options;
  options.steps = 60;
  options.global_batch = options.micro_batch = 8;
  options.schedule.kind = pando::Schedule::Kind::kConstant;
  options.schedule.peak = 0.1;
  pando::Trainer trainer(model, registry, pando::CpuDevice(), data->train, data->validation,
                         options);
  KeepLosses kept;
  const pando::TrainingSummary summary = trainer.Run(kept);
  ASSERT_EQ(kept.losses.size(), 60U);
  // The head starts at 0, so that all 26 letters are equally probable: f32's rounding of ln 26.
  EXPECT_NEAR(kept.losses[0], std::log(26.0), 1e-6);
  // Every letter is then all but certain.
  EXPECT_LT(kept.losses.back(), 0.01);
  EXPECT_LT(*summary.val_loss, 0.01);
}

}  // namespace
