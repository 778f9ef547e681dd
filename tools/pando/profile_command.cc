#include <iostream>

#include "absl/strings/str_format.h"
#include "ckpt/atomic_file.h"
#include "dist/hetero/lonely_communicator.h"
#include "dist/hetero/profile_file.h"
#include "engine/allocator.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "models/gpt.h"
#include "ops/kernels/tf32.h"
#include "tools/pando/commands.h"
#include "tools/pando/device_option.h"
#include "tools/pando/train_options.h"
#include "train/device_profiler.h"

namespace pando {
namespace {

struct Options {
  GptConfig gpt;
  std::string device = "auto", precision = "f32", budget, out;
  int64_t length = 0;
  int64_t threads = 0;
  double share = 1;
  bool no_recompute = false;
  bool json = false;
  EmulationOptions emulation;
  ProfileOptions profile;
};

/// Measures one way to compute the model, on parameters of its own.
MeasuredProfile::Way Measure(const Options& o, const ChosenDevice& chosen, DType dtype,
                             bool recompute, MeasuredProfile& profile) {
  ParameterRegistry registry;
  Gpt model(registry.Root(), o.gpt);
  model.SetRecompute(recompute);
  // A part of the state is held as at stage 3, beside a rank that isn't there.
  std::unique_ptr<Communicator> others;
  ZeroOptions zero{.dtype = dtype};
  if (o.share < 1) {
    others = NewLonelyCommunicator(2, *chosen.device);
    zero.stage = 3;
    zero.shares = {o.share, 1 - o.share};
  }
  Zero parameters(registry, model.units(), zero, others.get(), *chosen.device);
  parameters.Initialize(1);
  const MeasuredDevice measured = ProfileDevice(model, parameters, o.profile);
  profile.units.clear();
  for (int u = 0; u < parameters.schedule().units(); ++u) {
    profile.units.push_back({parameters.schedule().unit(u).interval.size(),
                             parameters.schedule().Gathers(u, /*with_backward=*/true)});
  }
  profile.memory = measured.memory;
  profile.optimizer_seconds = measured.optimizer_seconds;
  return {recompute, measured.compute.fixed_bytes, measured.compute.bytes_per_sample,
          measured.points};
}

int RunProfile(Options o) {
  if (o.threads > 0) SetNumThreads(static_cast<int>(o.threads));
  Require(o.share > 0 && o.share <= 1, "--share ", o.share, ": give a part above 0, up to 1");
  o.profile.length = o.length > 0 ? o.length : o.gpt.context;
  Require(o.profile.length <= o.gpt.context, "--length ", o.profile.length,
          " is more than the model's --context ", o.gpt.context);
  const ChosenDevice chosen = Emulate(ChooseDevice(o.device), o.emulation);
  const Precision precision = ChoosePrecision(o.precision, chosen);
  allow_tf32 = precision.tf32;
  if (!o.budget.empty()) chosen.device->allocator().SetBudget(ParseBytes(o.budget));
  std::cerr << chosen.note << "\n";
  o.profile.note = [](const std::string& line) { std::cerr << "  " << line << std::endl; };

  MeasuredProfile profile;
  profile.device = chosen.device->name();
  profile.model = absl::StrFormat("GPT with %d layers, %d heads, width %d, vocabulary %d",
                                  o.gpt.layers, o.gpt.heads, o.gpt.width, o.gpt.vocab_size);
  profile.length = o.profile.length;
  profile.dtype = precision.dtype;
  for (const bool recompute : {false, true}) {
    if (recompute && o.no_recompute) continue;
    std::cerr << (recompute ? "with recompute" : "keeping all activations") << std::endl;
    profile.ways.push_back(Measure(o, chosen, precision.dtype, recompute, profile));
  }
  if (!o.out.empty()) {
    const absl::Status written = WriteFileAtomically(o.out, FormatProfile(profile));
    Require(written.ok(), "--out ", o.out, ": ", std::string(written.message()));
  }
  if (o.json || o.out.empty()) std::cout << FormatProfile(profile);
  return kDone;
}

}  // namespace

Command AddProfileCommand(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = AddCommand(app, "profile",
                           "measure how fast this machine's device computes a model, and how large "
                           "a micro-batch it takes: what pando plan reads");
  AddDeviceOption(*c, o->device);
  AddEmulationOptions(*c, o->emulation.speed, o->emulation.jitter);
  c->add_option("--precision", o->precision, "f32, tf32, bf16 or f16")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "tf32", "bf16", "f16"}));
  c->add_option_function<std::string>(
       "--model",
       [o](const std::string& name) {
         const GptConfig preset = GptPreset(name);
         o->gpt.layers = preset.layers;
         o->gpt.heads = preset.heads;
         o->gpt.width = preset.width;
       },
       "layers, heads and width of a known one")
      ->check(CLI::IsMember(GptPresets()));
  c->add_option("--layers", o->gpt.layers)->capture_default_str();
  c->add_option("--heads", o->gpt.heads)->capture_default_str();
  c->add_option("--width", o->gpt.width)->capture_default_str();
  c->add_option("--context", o->gpt.context)->capture_default_str();
  c->add_option("--vocab", o->gpt.vocab_size, "size of the vocabulary")->capture_default_str();
  c->add_option("--length", o->length, "tokens of a sample; default: the context");
  c->add_option("--memory-budget", o->budget, "memory that may be used, as 4GB; default: all");
  c->add_option("--share", o->share,
                "part of the state that the device holds, where the whole does not fit")
      ->capture_default_str();
  c->add_option("--largest", o->profile.largest, "samples to try in a micro-batch at most")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  c->add_option("--seconds", o->profile.seconds, "after which no more sizes are timed")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  c->add_option("--threads", o->threads, "of the CPU; default: its cores");
  c->add_flag("--no-recompute", o->no_recompute, "don't measure recompute too");
  c->add_option("--out", o->out, "file to write the profile to");
  c->add_flag("--json", o->json, "print the profile, also with --out");
  return {c, [o] { return RunProfile(*o); }};
}

}  // namespace pando
