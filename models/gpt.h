#pragma once

// The GPT-2 family (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019):
// pre-norm transformer blocks, learned positions, tanh GELU, token embedding tied to the head.
// Parameters carry Hugging Face's names ("h.0.attn.c_attn.weight") and layouts ([in, out]).

#include <cstdint>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "models/layers.h"

namespace pando {

struct GptConfig {
  int64_t vocab_size = 50257;
  int64_t context = 1024;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t width = 768;
  double dropout = 0;
  bool bias = true;  ///< in linear layers and layer norms
  double layer_norm_eps = 1e-5;
  /// Standard deviation of the initial matrices and embeddings; 0: see InitStd.
  double init_std = 0;

  /// init_std, or if that is 0, GPT-2's 0.02, times sqrt(768 / width) for a model narrower than the
  /// narrowest GPT-2: products of 768 terms of that size make activations as large as GPT-2's, and
  /// so must fewer. (At width 128 the constant 0.02 costs 0.14 nats: docs/quality.md.)
  double InitStd() const;

  /// Throws InvalidArgument, saying which number doesn't fit and why.
  void Check() const;
};

/// Names of the presets: "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1.5b".
std::vector<std::string> GptPresets();
/// Layers, heads and width of a preset. Throws InvalidArgument listing the presets.
GptConfig GptPreset(const std::string& name);

class GptBlock;

class Gpt : public LanguageModel {
 public:
  /// Declares the parameters. Throws InvalidArgument if the configuration makes no sense.
  Gpt(const Scope& scope, const GptConfig& config);
  ~Gpt() override;

  const GptConfig& config() const { return config_; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t context() const override { return config_.context; }
  Tensor Loss(const Tensor& tokens, const Tensor& targets, const StepContext& step,
              double scale) override;
  /// Logits of all positions, [B, T, padded vocabulary]: for inspection and tests.
  Tensor Logits(const Tensor& tokens, const StepContext& step);
  Tensor NextLogits(const Tensor& tokens, KvCache& cache) override;
  KvCache NewCache(int64_t batch, int64_t capacity) override;
  std::vector<Unit*> units() override;
  void SetRecompute(bool on) override;
  double FlopsPerToken(int64_t length) const override;
  std::string FlopsFormula() const override;
  int64_t ActivationBytes(int64_t batch, int64_t length, int64_t element_bytes) const override;

 private:
  Tensor Embed(const Tensor& tokens, int64_t first_position, const StepContext& step);
  std::vector<Tensor> Body(const Tensor& tokens, const StepContext& step);
  Tensor BeforeHead(const std::vector<Tensor>& flow) const;
  Tensor Head(const std::vector<Tensor>& flow) const;
  double HeadBytes(int64_t tokens, int64_t element_bytes) const;
  void CheckTokens(const Tensor& tokens) const;

  GptConfig config_;
  Parameter wte_;
  Parameter wpe_;
  ModuleList<GptBlock> blocks_;
  LayerNormLayer ln_f_;
  Unit embedding_unit_;
  Unit head_unit_;
};

}  // namespace pando
