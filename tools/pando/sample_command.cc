#include <iostream>

#include "absl/strings/str_cat.h"
#include "ckpt/tensor_file_set.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "tools/pando/commands.h"
#include "tools/pando/device_option.h"
#include "tools/pando/saved_model.h"
#include "train/generate.h"

namespace pando {
namespace {

struct SampleOptions {
  std::string checkpoint;
  std::string prompt = "\n";
  std::string tokenizer;
  std::string device = "auto";
  int64_t tokens = 200;
  int threads = 0;
  SamplingOptions sampling;
};

int RunSample(const SampleOptions& options) {
  Require(options.tokens >= 0, "--tokens ", options.tokens, ": must not be negative");
  Require(options.threads >= 0, "--threads ", options.threads, ": must not be negative");
  CheckSampling(options.sampling);
  if (options.threads > 0) SetNumThreads(options.threads);
  const ChosenDevice chosen = ChooseDevice(options.device);
  std::cerr << chosen.note << std::endl;
  Device& device = *chosen.device;
  SavedModel model = OpenSavedModel(options.checkpoint, options.tokenizer, device);
  const std::vector<int32_t> prompt = PromptIds(*model.tokenizer, options.prompt);
  std::cout << options.prompt << std::flush;
  GenerateText(*model.model, device, *model.tokenizer, prompt, options.tokens, options.sampling,
               std::cout);
  std::cout << std::endl;
  return kDone;
}

}  // namespace

Command AddSampleCommand(CLI::App& app) {
  auto o = std::make_shared<SampleOptions>();
  CLI::App* c = AddCommand(app, "sample", "generate text from a checkpoint");
  c->add_option(
       "--checkpoint", o->checkpoint,
       "a checkpoint, a run's folder (its newest good one), or a Hugging Face GPT-2 folder")
      ->required();
  c->add_option("--prompt", o->prompt, "text to go on from");
  c->add_option("--tokens", o->tokens, "tokens to generate")->capture_default_str();
  c->add_option("--temperature", o->sampling.temperature, "0: always the likeliest token")
      ->capture_default_str();
  c->add_option("--top-k", o->sampling.top_k, "draw among the k likeliest; 0: all")
      ->capture_default_str();
  c->add_option("--top-p", o->sampling.top_p, "draw among the likeliest that sum to p")
      ->capture_default_str();
  c->add_option("--seed", o->sampling.seed)->capture_default_str();
  c->add_option("--tokenizer", o->tokenizer, "default: the checkpoint's own");
  AddDeviceOption(*c, o->device);
  c->add_option("--threads", o->threads, "CPU threads; default: all");
  return {c, [o] { return RunSample(*o); }};
}

}  // namespace pando
