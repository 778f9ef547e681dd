#include "models/gpt.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/error.h"
#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/linear_cross_entropy.h"
#include "ops/shape_ops.h"

namespace pando {
namespace {

// GPT-2's smallest model, and the standard deviation of its initial weights.
constexpr double kGpt2Width = 768;
constexpr double kGpt2Std = 0.02;
// Matrix products like sizes that are multiples of this; GPT-2's 50257 becomes 50304.
constexpr int64_t kVocabMultiple = 64;

int64_t VocabPadding(int64_t vocab) {
  return (kVocabMultiple - vocab % kVocabMultiple) % kVocabMultiple;
}

struct Preset {
  const char* name;
  int64_t layers, heads, width;
};
constexpr Preset kPresets[] = {{"gpt2-124m", 12, 12, 768},
                               {"gpt2-350m", 24, 16, 1024},
                               {"gpt2-774m", 36, 20, 1280},
                               {"gpt2-1.5b", 48, 25, 1600}};

const GptConfig& Checked(const GptConfig& config) {
  config.Check();
  return config;
}

Unit MakeUnit(std::string name, const std::vector<Parameter*>& all, const std::string& prefix) {
  Unit unit{std::move(name), {}, false};
  for (Parameter* p : all) {
    if (p->name().rfind(prefix, 0) == 0) unit.parameters.push_back(p);
  }
  return unit;
}

}  // namespace

void GptConfig::Check() const {
  const auto positive = [](const char* what, int64_t n) {
    Require(n > 0, "gpt: ", what, " is ", n, ", but must be positive");
  };
  positive("the vocabulary", vocab_size);
  positive("the context", context);
  positive("the number of layers", layers);
  positive("the number of heads", heads);
  positive("the width", width);
  Require(width % heads == 0, "gpt: a width of ", width, " does not divide into ", heads,
          " heads; choose a width that is a multiple of the number of heads");
  Require(dropout >= 0 && dropout < 1, "gpt: dropout ", dropout, " is not in [0, 1)");
  Require(init_std >= 0 && std::isfinite(init_std), "gpt: the initial standard deviation ",
          init_std, " must be finite and not negative");
}

double GptConfig::InitStd() const {
  if (init_std > 0) return init_std;
  return kGpt2Std * std::sqrt(std::max(1.0, kGpt2Width / static_cast<double>(width)));
}

std::vector<std::string> GptPresets() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

GptConfig GptPreset(const std::string& name) {
  for (const Preset& p : kPresets) {
    if (name != p.name) continue;
    GptConfig config;
    config.layers = p.layers;
    config.heads = p.heads;
    config.width = p.width;
    return config;
  }
  throw InvalidArgument(
      absl::StrCat("unknown model \"", name, "\": known are ", absl::StrJoin(GptPresets(), ", ")));
}

/// One block: attention and a feed-forward network, each on a normalised copy of the residual
/// stream. What the feed-forward network adds is handed on as it is, and added where the next
/// normalisation reads it.
class GptBlock : public Module {
 public:
  GptBlock(const Scope& scope, const GptConfig& config)
      : Module(scope),
        config_(config),
        ln_1_(scope / "ln_1", config.width, config.layer_norm_eps, config.bias),
        c_attn_(scope / "attn" / "c_attn", config.width, 3 * config.width, config.InitStd(),
                config.bias),
        attn_proj_(scope / "attn" / "c_proj", config.width, config.width, ResidualStd(config),
                   config.bias),
        ln_2_(scope / "ln_2", config.width, config.layer_norm_eps, config.bias),
        c_fc_(scope / "mlp" / "c_fc", config.width, 4 * config.width, config.InitStd(),
              config.bias),
        mlp_proj_(scope / "mlp" / "c_proj", 4 * config.width, config.width, ResidualStd(config),
                  config.bias) {
    unit_ = MakeUnit(name(), scope.registry().parameters(), name() + ".");
  }

  /// in: {stream [B, T, C], addition [B, T, C] or undefined}; out likewise. `cache` and `layer` for
  /// generation only.
  std::vector<Tensor> Forward(const std::vector<Tensor>& in, const StepContext& step,
                              KvCache* cache, int64_t layer) const {
    Tensor stream = in[0];
    Tensor x;
    if (in[1].defined()) {
      auto next = ln_1_.AfterResidual(in[1], stream);
      stream = std::move(next.sum);
      x = std::move(next.normalized);
    } else {
      x = ln_1_(stream);
    }
    x = Attend(c_attn_(x), step, cache, layer);
    x = DropoutAt("attn.dropout", attn_proj_(x), step);
    auto next = ln_2_.AfterResidual(x, stream);
    x = mlp_proj_.AfterGelu(c_fc_, next.normalized);
    return {std::move(next.sum), DropoutAt("mlp.dropout", x, step)};
  }

  Unit& unit() { return unit_; }
  bool recompute() const { return unit_.recompute; }

 private:
  /// Projections onto the residual stream start smaller, as GPT-2's do, so that its variance does
  /// not grow with depth.
  static double ResidualStd(const GptConfig& config) {
    return config.InitStd() / std::sqrt(2.0 * static_cast<double>(config.layers));
  }

  double DropoutOf(const StepContext& step) const { return step.training ? config_.dropout : 0.0; }

  Tensor DropoutAt(const char* site, const Tensor& x, const StepContext& step) const {
    return Dropout(x, DropoutOf(step), step.KeyFor(name() + "." + site), step.sample_ids);
  }

  Tensor Attend(const Tensor& qkv, const StepContext& step, KvCache* cache, int64_t layer) const {
    AttentionOptions options;
    options.heads = config_.heads;
    if (cache != nullptr) {
      return AttentionWithCache(qkv, cache->keys[layer], cache->values[layer], cache->length,
                                options);
    }
    options.dropout = DropoutOf(step);
    options.random = step.KeyFor(name() + ".attn");
    options.sample_ids = step.sample_ids;
    return Attention(qkv, options);
  }

  GptConfig config_;
  LayerNormLayer ln_1_;
  LinearLayer c_attn_;
  LinearLayer attn_proj_;
  LayerNormLayer ln_2_;
  LinearLayer c_fc_;
  LinearLayer mlp_proj_;
  Unit unit_;
};

Gpt::Gpt(const Scope& scope, const GptConfig& config)
    : LanguageModel(scope),
      config_(Checked(config)),
      wte_(scope / "wte", "weight", {config.vocab_size, config.width},
           Initializer::Normal(0, config.InitStd()), WeightDecay::kYes,
           VocabPadding(config.vocab_size)),
      wpe_(scope / "wpe", "weight", {config.context, config.width},
           Initializer::Normal(0, config.InitStd()), WeightDecay::kYes),
      blocks_(scope / "h", config.layers, config),
      ln_f_(scope / "ln_f", config.width, config.layer_norm_eps, config.bias) {
  embedding_unit_ = Unit{"embedding", {&wte_, &wpe_}, false};
  head_unit_ = MakeUnit("head", scope.registry().parameters(), (scope / "ln_f").path() + ".");
  head_unit_.parameters.push_back(&wte_);
}

Gpt::~Gpt() = default;

void Gpt::CheckTokens(const Tensor& tokens) const {
  Require(tokens.rank() == 2 && tokens.dtype() == DType::kI32, "gpt: tokens ", Describe(tokens),
          " must be i32 [B, T]");
  Require(tokens.dim(1) <= config_.context, "gpt: ", tokens.dim(1),
          " tokens are more than the context of ", config_.context);
}

Tensor Gpt::Embed(const Tensor& tokens, int64_t first_position, const StepContext& step) {
  const Tensor x = PositionalEmbedding(tokens, wte_, wpe_, first_position);
  return Dropout(x, step.training ? config_.dropout : 0.0, step.KeyFor("embedding.dropout"),
                 step.sample_ids);
}

/// What the last block hands on: {stream, addition}, each [B, T, C].
std::vector<Tensor> Gpt::Body(const Tensor& tokens, const StepContext& step) {
  CheckTokens(tokens);
  std::vector<Tensor> flow = RunUnit(embedding_unit_,
                                     [this, tokens, step](const std::vector<Tensor>&) {
                                       return std::vector<Tensor>{Embed(tokens, 0, step)};
                                     },
                                     {});
  flow.emplace_back();
  for (int64_t i = 0; i < blocks_.size(); ++i) {
    GptBlock* block = &blocks_[i];
    flow = RunUnit(
        block->unit(),
        [block, step, i](const std::vector<Tensor>& in) {
          return block->Forward(in, step, nullptr, i);
        },
        flow);
  }
  return flow;
}

Tensor Gpt::BeforeHead(const std::vector<Tensor>& flow) const {
  return ln_f_.AfterResidual(flow[1], flow[0]).normalized;
}

Tensor Gpt::Head(const std::vector<Tensor>& flow) const {
  return Linear(BeforeHead(flow), wte_, Tensor(), WeightLayout::kOutIn);
}

Tensor Gpt::Logits(const Tensor& tokens, const StepContext& step) {
  return RunUnit(
      head_unit_,
      [this](const std::vector<Tensor>& flow) { return std::vector<Tensor>{Head(flow)}; },
      Body(tokens, step))[0];
}

Tensor Gpt::Loss(const Tensor& tokens, const Tensor& targets, const StepContext& step,
                 double scale) {
  return RunUnit(
      head_unit_,
      [this, targets, scale](const std::vector<Tensor>& flow) {
        return std::vector<Tensor>{
            LinearCrossEntropy(BeforeHead(flow), wte_, targets,
                               {.loss = {.vocab = config_.vocab_size, .scale = scale}})};
      },
      Body(tokens, step))[0];
}

KvCache Gpt::NewCache(int64_t batch, int64_t capacity) {
  Require(capacity <= config_.context, "gpt: a cache of ", capacity,
          " tokens is longer than the context of ", config_.context);
  KvCache cache;
  cache.capacity = capacity;
  const Tensor& like = wte_.value();
  for (int64_t i = 0; i < blocks_.size(); ++i) {
    const Shape shape{batch, capacity, config_.width};
    cache.keys.push_back(Tensor::Empty(shape, like.dtype(), like.device(), "key cache"));
    cache.values.push_back(Tensor::Empty(shape, like.dtype(), like.device(), "value cache"));
  }
  return cache;
}

Tensor Gpt::NextLogits(const Tensor& tokens, KvCache& cache) {
  const NoGrad no_grad;
  CheckTokens(tokens);
  Require(cache.length + tokens.dim(1) <= cache.capacity, "gpt: ", cache.length, " + ",
          tokens.dim(1), " tokens don't fit a cache of ", cache.capacity);
  const StepContext step;
  std::vector<Tensor> flow{Embed(tokens, cache.length, step), Tensor()};
  for (int64_t i = 0; i < blocks_.size(); ++i) flow = blocks_[i].Forward(flow, step, &cache, i);
  cache.length += tokens.dim(1);
  for (Tensor& t : flow) t = Slice(t, 1, tokens.dim(1) - 1, 1).Reshape({-1, config_.width});
  return Head(flow);
}

std::vector<Unit*> Gpt::units() {
  std::vector<Unit*> units{&embedding_unit_};
  for (int64_t i = 0; i < blocks_.size(); ++i) units.push_back(&blocks_[i].unit());
  units.push_back(&head_unit_);
  return units;
}

void Gpt::SetRecompute(bool on) {
  for (int64_t i = 0; i < blocks_.size(); ++i) blocks_[i].unit().recompute = on;
}

double Gpt::FlopsPerToken(int64_t length) const {
  const auto matmul_parameters =
      static_cast<double>(scope().registry().numel() - wpe_.shape().numel());
  return 6 * matmul_parameters + 12.0 * static_cast<double>(config_.layers) *
                                     static_cast<double>(config_.width) *
                                     static_cast<double>(length);
}

std::string Gpt::FlopsFormula() const {
  return "6 N + 12 L C T per token, N: parameters without positions, L: layers, C: width, T: "
         "tokens of a sequence";
}

int64_t Gpt::ActivationBytes(int64_t batch, int64_t length, int64_t element_bytes) const {
  const int64_t tokens = batch * length;
  const int64_t width = config_.width;
  // Kept per block: stream, two normalised copies, qkv, attention, the sum behind it, the wide
  // layer before and after GELU, and the addition handed on.
  const bool recompute = blocks_[0].recompute();
  const int64_t block = (1 + 2 + 3 + 1 + 1 + 8 + 1) * width;
  // What backward needs for the block it is in: gradients of the wide layer, before and after GELU,
  // and all that a recomputed block had not kept.
  const int64_t kept = config_.layers * (recompute ? 2 * width : block);
  const int64_t at_once = 8 * width + (recompute ? block : 0);
  // In floating point: nobody has checked yet that these sizes make sense.
  const double bytes = static_cast<double>(tokens * element_bytes) *
                           static_cast<double>(kept + at_once + 2 * width) +
                       HeadBytes(tokens, element_bytes);
  return static_cast<int64_t>(std::min(bytes, 0x1p62));
}

/// Logits of a chunk and, where there are several, the gradients that are kept instead of them.
double Gpt::HeadBytes(int64_t tokens, int64_t element_bytes) const {
  const int64_t vocab = config_.vocab_size + VocabPadding(config_.vocab_size);
  const int64_t chunk = LossChunkRows(tokens, vocab, element_bytes);
  const auto logits =
      static_cast<double>(chunk) * static_cast<double>(vocab) * static_cast<double>(element_bytes);
  if (chunk == tokens) return logits;
  const auto width = static_cast<double>(config_.width);
  return logits + static_cast<double>(tokens * element_bytes) * width +
         static_cast<double>(vocab * int64_t{sizeof(float)}) * width;
}

}  // namespace pando
