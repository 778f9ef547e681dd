// A language model of one's own, in one file: each token sees the average of those before it, and a
// small network makes a prediction of both. Not a good model, but a complete one: it is trained,
// evaluated and reported on by the same Trainer as GPT.
//
//   tools/run build //examples:own_model && bazel-bin/examples/own_model FILE.txt
#include <iostream>

#include "engine/cpu/cpu_device.h"
#include "models/language_model.h"
#include "models/layers.h"
#include "ops/arithmetic.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/matmul.h"
#include "train/data.h"
#include "train/trainer.h"

using namespace pando;  // NOLINT: an example

class AveragingModel : public LanguageModel {
 public:
  AveragingModel(const Scope& scope, int64_t vocab, int64_t context, int64_t width)
      : LanguageModel(scope),
        vocab_(vocab),
        context_(context),
        embedding_(scope, "embedding", {vocab, width}, Initializer::Normal(0, 0.02),
                   WeightDecay::kYes),
        norm_(scope / "norm", width, 1e-5, /*with_bias=*/true),
        hidden_(scope / "hidden", width, 4 * width, 0.02, /*with_bias=*/true),
        head_(scope / "head", 4 * width, vocab, 0.02, /*with_bias=*/false) {}

  int64_t vocab_size() const override { return vocab_; }
  int64_t context() const override { return context_; }

  Tensor Loss(const Tensor& tokens, const Tensor& targets, const StepContext& /*step*/,
              double scale) override {
    const Tensor x = Embedding(tokens, embedding_);                        // [B, T, C]
    const Tensor past = Matmul(Averages(tokens.dim(1), x.device()), x);    // [T, T] [B, T, C]
    const Tensor hidden = hidden_.WithGelu(norm_(Add(x, past)));           // [B, T, 4C]
    return CrossEntropyInPlace(head_(hidden), targets, {.scale = scale});  // [B, T, V] -> [1]
  }

 private:
  /// Row t: 1 / (t + 1) for the tokens up to t, 0 for those behind.
  static Tensor Averages(int64_t length, Device& device) {
    std::vector<float> rows(length * length, 0.0F);
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t s = 0; s <= t; ++s) rows[t * length + s] = 1.0F / static_cast<float>(t + 1);
    }
    return Tensor::FromHost(rows, {length, length}, device);
  }

  int64_t vocab_, context_;
  Parameter embedding_;
  LayerNormLayer norm_;
  LinearLayer hidden_, head_;
};

struct PrintEvery100 : TrainerHooks {
  void OnStep(const StepReport& report) override {
    if (report.step % 100 == 0) std::cout << report.step << "  " << report.result.loss << "\n";
  }
};

int main(int argc, char** argv) {
  DataOptions where{.path = argc > 1 ? argv[1] : "/usr/share/games/fortunes", .context = 64};
  const absl::StatusOr<Data> data = LoadData(where);
  if (!data.ok()) return std::cerr << data.status().message() << "\n", 1;
  ParameterRegistry registry;
  AveragingModel model(registry.Root(), data->vocab_size, 64, 128);
  TrainerOptions options;
  options.steps = 500;
  options.global_batch = 16;
  Trainer trainer(model, registry, CpuDevice(), data->train, data->validation, options);
  PrintEvery100 printer;
  std::cout << "validation loss " << *trainer.Run(printer).val_loss << "\n";
}
