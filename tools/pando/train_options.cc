#include "tools/pando/train_options.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/error.h"
#include "tools/pando/command_line.h"

namespace pando {
namespace {

// The model that is trained if nothing is said: minutes on two cores.
constexpr int64_t kLayers = 4, kHeads = 4, kWidth = 128, kContext = 128;
constexpr int64_t kSteps = 4000, kBatch = 16;
constexpr double kLearningRate = 1e-3;

void AddModelOptions(CLI::App& c, TrainOptions& o) {
  const std::string group = "Model";
  c.add_option("--model", o.model, absl::StrCat("preset: ", absl::StrJoin(GptPresets(), ", ")))
      ->group(group);
  c.add_option("--layers", o.gpt.layers, "transformer blocks")->group(group);
  c.add_option("--heads", o.gpt.heads, "attention heads")->group(group);
  c.add_option("--width", o.gpt.width, "embedding width")->group(group);
  c.add_option("--context", o.gpt.context, "tokens of a sequence")->group(group);
  c.add_option("--dropout", o.gpt.dropout, "probability")->capture_default_str()->group(group);
  c.add_option("--init-std", o.gpt.init_std,
               "standard deviation of initial weights; default: GPT-2's 0.02, times sqrt(768 / "
               "width) for narrower models")
      ->check(CLI::PositiveNumber)
      ->group(group);
  c.add_flag("--no-bias", o.no_bias, "no biases in linear layers and layer norms")->group(group);
  c.add_option("--init-from", o.init_from, "Hugging Face GPT-2 folder to start from")->group(group);
}

void AddDataOptions(CLI::App& c, TrainOptions& o) {
  const std::string group = "Data";
  c.add_option("--data", o.data,
               "text file, token file (.bin as nanoGPT or llm.c write them), or a folder of such; "
               "default: English quotations of the Debian package fortunes")
      ->group(group);
  c.add_option("--tokenizer", o.tokenizer,
               "char, byte, or a folder or file of a byte-level BPE (vocab.json and merges.txt, or "
               "tokenizer.json); default: char for text, gpt2's vocabulary size for token files")
      ->group(group);
}

void AddTrainingOptions(CLI::App& c, TrainOptions& o) {
  const std::string group = "Training";
  TrainerOptions& t = o.trainer;
  c.add_option("--steps", t.steps, "optimizer steps")->group(group);
  c.add_option("--global-batch", t.global_batch, "samples of a step")->group(group);
  c.add_option("--micro-batch", o.ranks.micro_batch,
               "samples at a time, for all ranks or as 8,8,4 for each; default: all of a rank's")
      ->group(group);
  c.add_option("--lr", t.schedule.peak, "largest learning rate")->group(group);
  c.add_option("--min-lr", o.min_lr, "learning rate at the end; default: a tenth of --lr")
      ->group(group);
  c.add_option("--warmup-steps", t.schedule.warmup_steps, "steps of linear warm-up")->group(group);
  c.add_option("--schedule", o.schedule, "cosine, linear or constant")
      ->check(CLI::IsMember({"cosine", "linear", "constant"}))
      ->capture_default_str()
      ->group(group);
  c.add_option("--beta1", t.zero.adamw.beta1, "AdamW")->capture_default_str()->group(group);
  c.add_option("--beta2", t.zero.adamw.beta2, "AdamW")->capture_default_str()->group(group);
  c.add_option("--weight-decay", t.zero.adamw.weight_decay, "AdamW, on matrices")
      ->capture_default_str()
      ->group(group);
  c.add_option("--grad-clip", t.step.grad_clip, "largest gradient norm; 0: none")
      ->capture_default_str()
      ->group(group);
  c.add_option("--precision", o.precision,
               "f32, tf32 (f32 with faster, coarser matrix products; GPU), bf16, or f16 with "
               "dynamic loss scaling (GPU)")
      ->check(CLI::IsMember({"f32", "tf32", "bf16", "f16"}))
      ->capture_default_str()
      ->group(group);
  c.add_option("--seed", t.seed, "of initial weights, data order and dropout")
      ->capture_default_str()
      ->group(group);
  c.add_option("--eval-interval", t.eval_interval, "steps between evaluations; 0: only at the end")
      ->capture_default_str()
      ->group(group);
  c.add_option("--eval-batches", t.eval_batches,
               "micro-batches of an evaluation in between; 0: the whole validation split")
      ->group(group);
}

void AddMachineOptions(CLI::App& c, TrainOptions& o) {
  const std::string group = "Machine and output";
  c.add_option("--out", o.out, "folder of the run: checkpoints, log.jsonl")
      ->capture_default_str()
      ->group(group);
  c.add_option("--resume", o.resume,
               "auto: go on from the newest good checkpoint in --out; never: start anew, in a "
               "folder without any")
      ->check(CLI::IsMember({"auto", "never"}))
      ->capture_default_str()
      ->group(group);
  c.add_option("--checkpoint-interval", o.checkpoint_interval, "steps between checkpoints")
      ->capture_default_str()
      ->group(group);
  c.add_option("--keep", o.keep, "checkpoints to keep")->capture_default_str()->group(group);
  c.add_flag("--recompute", o.trainer.recompute, "keep fewer activations, compute more")
      ->group(group);
  AddDeviceOption(c, o.device)->group(group);
  AddEmulationOptions(c, o.emulation.speed, o.emulation.jitter);
  c.add_option("--threads", o.threads, "CPU threads; default: all")->group(group);
  c.add_option("--memory-budget", o.memory_budget, "most memory for tensors, as 16GB or 512MiB")
      ->group(group);
  c.add_option("--profile", o.profile, "write a Chrome trace of a few steps to this file")
      ->group(group);
  c.add_flag("--json", o.json, "end with one line of JSON on standard output")->group(group);
}

/// The bounds are far beyond use, and near enough that no product of sizes overflows. (CLI11 makes
/// the largest int64 of what is larger.)
void CheckPositive(const char* option, int64_t value, int64_t most) {
  Require(value > 0, option, " ", value, ": must be positive");
  Require(value <= most, option, " ", value, ": must be at most ", most);
}

void CheckValues(const TrainOptions& o) {
  const TrainerOptions& t = o.trainer;
  constexpr int64_t kMostSteps = int64_t{1} << 40, kMostSamples = 1 << 24, kMostWidth = 1 << 20;
  Require(t.steps >= 0 && t.steps <= kMostSteps, "--steps ", t.steps,
          ": must not be negative, nor more than ", kMostSteps);
  CheckPositive("--global-batch", t.global_batch, kMostSamples);
  if (!o.ranks.micro_batch.empty()) {
    const std::vector<double> sizes = ParseList("--micro-batch", o.ranks.micro_batch);
    for (const double m : sizes) {
      Require(m == std::floor(m), "--micro-batch ", m, ": must be whole");
      if (sizes.size() == 1 || m != 0) {
        CheckPositive("--micro-batch", static_cast<int64_t>(m), kMostSamples);
      }
    }
  }
  Require(t.check_replicas >= 0, "--check-replicas ", t.check_replicas, ": must not be negative");
  CheckPositive("--context", o.gpt.context, kMostSamples);
  CheckPositive("--layers", o.gpt.layers, 1 << 14);
  CheckPositive("--heads", o.gpt.heads, kMostWidth);
  CheckPositive("--width", o.gpt.width, kMostWidth);
  CheckPositive("--checkpoint-interval", o.checkpoint_interval, kMostSteps);
  CheckPositive("--keep", o.keep, kMostSteps);
  Require(o.threads >= 0, "--threads ", o.threads, ": must not be negative");
  Require(t.eval_interval >= 0, "--eval-interval ", t.eval_interval, ": must not be negative");
  Require(t.eval_batches >= 0, "--eval-batches ", t.eval_batches, ": must not be negative");
  Require(t.schedule.warmup_steps >= 0, "--warmup-steps ", t.schedule.warmup_steps,
          ": must not be negative");
  const auto finite = [](const char* option, double value, double low, double high) {
    Require(value >= low && value < high, option, " ", value, ": must lie in [", low, ", ", high,
            ")");
  };
  finite("--lr", t.schedule.peak, 0, 1e6);
  finite("--min-lr", t.schedule.minimum, 0, 1e6);
  finite("--beta1", t.zero.adamw.beta1, 0, 1);
  finite("--beta2", t.zero.adamw.beta2, 0, 1);
  finite("--weight-decay", t.zero.adamw.weight_decay, 0, 1e6);
  finite("--grad-clip", t.step.grad_clip, 0, 1e30);
}

}  // namespace

void AddTrainOptions(CLI::App& command, TrainOptions& options) {
  AddModelOptions(command, options);
  AddDataOptions(command, options);
  AddTrainingOptions(command, options);
  AddMachineOptions(command, options);
  AddRankOptions(command, options.ranks, options.trainer);
}

void CompleteTrainOptions(const CLI::App& command, TrainOptions& o) {
  const auto given = [&command](const char* name) { return command.count(name) > 0; };
  // A number that was not given comes from the preset, or is that of the small model.
  const GptConfig preset =
      o.model.empty()
          ? GptConfig{.context = kContext, .layers = kLayers, .heads = kHeads, .width = kWidth}
          : GptPreset(o.model);
  if (!given("--layers")) o.gpt.layers = preset.layers;
  if (!given("--heads")) o.gpt.heads = preset.heads;
  if (!given("--width")) o.gpt.width = preset.width;
  if (!given("--context")) o.gpt.context = preset.context;
  o.gpt.bias = !o.no_bias;
  TrainerOptions& t = o.trainer;
  if (!o.init_from.empty()) {
    for (const char* option :
         {"--model", "--layers", "--heads", "--width", "--init-std", "--no-bias"}) {
      Require(!given(option), option, " with --init-from: the model is that of the folder; leave ",
              option, " out");
    }
    if (given("--context")) t.length = o.gpt.context;
  }
  if (given("--memory-budget")) o.memory_budget_bytes = ParseBytes(o.memory_budget);
  if (!given("--steps")) t.steps = kSteps;
  o.ranks.global_batch_given = given("--global-batch");
  if (!given("--global-batch")) t.global_batch = kBatch;
  if (!given("--lr")) t.schedule.peak = kLearningRate;
  if (!given("--warmup-steps")) t.schedule.warmup_steps = std::min<int64_t>(100, t.steps / 10);
  t.schedule.minimum = given("--min-lr") ? o.min_lr : t.schedule.peak / 10;
  t.schedule.kind = o.schedule == "cosine"   ? Schedule::Kind::kCosine
                    : o.schedule == "linear" ? Schedule::Kind::kLinear
                                             : Schedule::Kind::kConstant;
  CheckValues(o);
  o.gpt.Check();
}

int64_t ParseBytes(const std::string& text) {
  static const std::map<std::string, double> units = {
      {"", 1},       {"b", 1},        {"kb", 1e3},   {"mb", 1e6},      {"gb", 1e9},
      {"tb", 1e12},  {"k", 1024.0},   {"kib", 1024}, {"m", 1048576.0}, {"mib", 1048576.0},
      {"g", 0x1p30}, {"gib", 0x1p30}, {"t", 0x1p40}, {"tib", 0x1p40}};
  const size_t end = text.find_first_not_of("0123456789.");
  const std::string number = text.substr(0, end);
  const std::string unit =
      end == std::string::npos
          ? ""
          : absl::AsciiStrToLower(absl::StripAsciiWhitespace(text.substr(end)));
  double value = 0;
  const auto it = units.find(unit);
  const bool known = absl::SimpleAtod(number, &value) && it != units.end();
  if (known) value *= it->second;
  Require(known && value >= 1 && value < 0x1p60, "\"", text,
          "\" is no amount of memory: write it as 16GB or 512MiB");
  return std::llround(value);
}

}  // namespace pando
