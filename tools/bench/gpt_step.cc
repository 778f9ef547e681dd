#include "tools/bench/gpt_step.h"

#include <span>

#include "engine/allocator.h"
#include "engine/random.h"
#include "ops/kernels/tf32.h"

namespace pando {

void AddGptStepOptions(CLI::App& app, GptStepOptions& o) {
  app.add_option_function<std::string>(
         "--preset",
         [&o](const std::string& name) {
           const GptConfig preset = GptPreset(name);
           o.model.layers = preset.layers;
           o.model.heads = preset.heads;
           o.model.width = preset.width;
         },
         "layers, heads and width of a known model")
      ->check(CLI::IsMember(GptPresets()));
  app.add_option("--layers", o.model.layers)->capture_default_str();
  app.add_option("--heads", o.model.heads)->capture_default_str();
  app.add_option("--width", o.model.width)->capture_default_str();
  app.add_option("--context", o.model.context)->capture_default_str();
  app.add_option("--vocab", o.model.vocab_size)->capture_default_str();
  app.add_option("--micro-batch", o.micro_batch)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--device", o.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--precision", o.precision)
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "tf32", "bf16"}));
  app.add_option("--learning-rate", o.learning_rate)->capture_default_str();
  app.add_flag("--recompute", o.recompute);
  app.add_flag("--direct", o.direct, "every tensor in memory of its own, for memory checkers");
}

namespace {

ChosenDevice Prepared(const GptStepOptions& o) {
  ChosenDevice chosen = ChooseDevice(o.device);
  allow_tf32 = ChoosePrecision(o.precision, chosen).tf32;
  if (o.direct) chosen.device->allocator().SetDirect(true);
  return chosen;
}

}  // namespace

GptStep::GptStep(const GptStepOptions& options)
    : options_(options),
      device_(Prepared(options)),
      model_(registry_.Root(), options.model),
      flat_(registry_, model_.units(), {.dtype = options.dtype()}, nullptr, device()),
      step_(model_, flat_, {}, options.micro_batch, options.model.context),
      tokens_(options.tokens() + 1) {
  model_.SetRecompute(options.recompute);
  flat_.Initialize(1);
  const RandomKey key{.seed = 1, .site = HashName("tokens"), .step = 0};
  for (size_t i = 0; i < tokens_.size(); ++i) {
    tokens_[i] = static_cast<int32_t>(RandomBits(key, 0, i) % options.model.vocab_size);
  }
}

StepResult GptStep::Run() {
  const auto tokens = std::span<const int32_t>(tokens_);
  const HostBatch batch{done_ * options_.micro_batch, options_.micro_batch, options_.model.context,
                        tokens.first(tokens.size() - 1), tokens.subspan(1)};
  return step_.Run(batch, {options_.micro_batch}, done_++, options_.learning_rate);
}

}  // namespace pando
