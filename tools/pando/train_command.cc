#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/atomic_file.h"
#include "ckpt/checkpoint_reader.h"
#include "ckpt/checkpoint_writer.h"
#include "ckpt/run_folder.h"
#include "dist/communicator/broadcast_text.h"
#include "dist/launch/progress_page.h"
#include "engine/allocator.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "engine/trace.h"
#include "models/hugging_face.h"
#include "ops/kernels/tf32.h"
#include "tools/pando/auto_plan.h"
#include "tools/pando/commands.h"
#include "tools/pando/device_option.h"
#include "tools/pando/interrupt.h"
#include "tools/pando/progress.h"
#include "tools/pando/rank_group.h"
#include "tools/pando/run_data.h"
#include "tools/pando/run_log.h"
#include "tools/pando/saved_model.h"
#include "tools/pando/train_options.h"
#include "train/data.h"
#include "train/generate.h"
#include "train/model_checkpoint.h"

namespace pando {
namespace {

// A trace of more steps is too large to look at.
constexpr int64_t kProfiledSteps = 5;

/// One run of `pando train`, from the options to the summary.
class TrainRun : public TrainerHooks {
 public:
  explicit TrainRun(const TrainOptions& options)
      : o_(options), progress_(options.trainer.steps, group_.first()) {
    SpreadOverRanks(o_.ranks, group_.rank(), group_.size(), o_.trainer);
  }

  int Run();

  void OnStep(const StepReport& report) override;
  void OnEvaluation(int64_t step, double loss) override;
  void OnStepDone(int64_t next_step) override;
  bool StopRequested() override { return Interrupted(); }

 private:
  void BuildModel();
  void PlanRanks();
  void CheckMemory();
  void OpenFolder();
  FoundCheckpoint FindCheckpoint();
  void LoadInitialState(const FoundCheckpoint& found);
  void LoadCheckpoint(const FoundCheckpoint& found);
  void LogOrThrow(const absl::Status& written) const;
  void ProfileUpTo(int64_t next_step);
  void Save(int64_t next_step);
  void FindIdentity();
  void CheckSameRun() const;
  void CheckIdentity(const Manifest& manifest) const;
  void OpenDevice();
  Device& device() const { return *device_.device; }
  std::vector<int32_t> StartOfSample() const;
  void Finish(const TrainingSummary& summary);

  TrainOptions o_;
  RankGroup group_;
  Progress progress_;
  ChosenDevice device_;
  Data data_;
  ParameterRegistry registry_;
  std::unique_ptr<Gpt> model_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<RunFolder> folder_;
  std::optional<RunLog> log_;
  /// What must be equal for a resumed run to be the same run.
  std::map<std::string, std::string> identity_;
  std::string plan_;  ///< made by measuring
  int64_t start_step_ = 0;
  int64_t saved_step_ = -1;
  bool resumes_ = false;
  bool tracing_ = false;
};

void TrainRun::OpenDevice() {
  device_ = Emulate(ChooseDevice(o_.device, group_.local_rank()), o_.emulation);
  const Precision precision = ChoosePrecision(o_.precision, device_);
  o_.trainer.precision = precision.dtype;
  allow_tf32 = precision.tf32;
  if (o_.memory_budget_bytes > 0) device().allocator().SetBudget(o_.memory_budget_bytes);
  progress_.Note(absl::StrCat(device_.note, "; precision: ", o_.precision));
}

void TrainRun::BuildModel() {
  model_ = std::make_unique<Gpt>(registry_.Root(), o_.gpt);
  progress_.Note(absl::StrFormat("data: %d training and %d validation tokens, vocabulary %d",
                                 data_.train.size(), data_.validation.size(), data_.vocab_size));
  progress_.Note(absl::StrFormat(
      "model: GPT with %d layers, %d heads, width %d, context %d: %s parameters; %s per token (%s)",
      o_.gpt.layers, o_.gpt.heads, o_.gpt.width, o_.gpt.context,
      WithPrefix(static_cast<double>(registry_.numel()), ""),
      WithPrefix(model_->FlopsPerToken(o_.SampleLength()), "FLOP"), model_->FlopsFormula()));
}

/// Where the plan is to be made now: by measuring, and with more than one rank.
void TrainRun::PlanRanks() {
  if (!o_.ranks.automatic()) return;
  Require(group_.size() > 1, "--plan auto is for several ranks: see pando launch");
  plan_ = PlanByMeasuring(o_.gpt, o_.trainer, device(), *group_.communicator(),
                          [this](const std::string& line) { progress_.Note(line); });
  UsePlan(plan_, "auto", group_.rank(), group_.size(), o_.trainer);
}

void TrainRun::CheckMemory() {
  model_->SetRecompute(o_.trainer.recompute);
  const int64_t need =
      Trainer::EstimateMemory(*model_, registry_, o_.trainer, group_.rank(), group_.size());
  const int64_t have = o_.memory_budget_bytes > 0 ? o_.memory_budget_bytes : device().TotalMemory();
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  progress_.Note(absl::StrFormat("memory: about %.0f MiB needed, %.0f MiB there; %d threads",
                                 mib(need), mib(have), NumThreads()));
  if (need > have) {
    throw OutOfMemory(absl::StrFormat(
        "training needs about %.0f MiB, but there are %.0f MiB: use a smaller --micro-batch, "
        "--recompute, a smaller model, or a larger --memory-budget",
        mib(need), mib(have)));
  }
}

void TrainRun::OpenFolder() {
  folder_.emplace(ValueOrThrow(RunFolder::Prepare(o_.out, CheckpointBytes(registry_))));
  for (const std::string& note : folder_->notes()) progress_.Note(note);
  // To be read, edited, and given to another run.
  if (!plan_.empty()) ThrowIfNotOk(WriteFileAtomically(JoinPath(o_.out, "plan.json"), plan_));
  // Better now than after the steps that were to be traced.
  Require(o_.profile.empty() || std::ofstream(o_.profile, std::ios::app).good(), "--profile ",
          o_.profile, ": this file can't be written");
}

void TrainRun::FindIdentity() {
  identity_ = {
      {"data", data_.train.Fingerprint()},
      {"tokenizer", data_.tokenizer == nullptr ? "none" : data_.tokenizer->Fingerprint()},
      {"seed", absl::StrCat(o_.trainer.seed)},
      {"global-batch", absl::StrCat(o_.trainer.global_batch)},
      {"context", absl::StrCat(o_.SampleLength())},
  };
}

/// Ranks that read other data, say, would train something that nobody asked for.
void TrainRun::CheckSameRun() const {
  const std::string mine = nlohmann::json(identity_).dump();
  const std::string first = BroadcastText(group_.communicator(), mine);
  Require(mine == first, "rank ", group_.rank(), " has ", mine, ", but rank 0 ", first,
          ": give all ranks the same data and options");
}

void TrainRun::CheckIdentity(const Manifest& manifest) const {
  for (const auto& [key, value] : identity_) {
    const auto it = manifest.info.metadata.find(key);
    if (it == manifest.info.metadata.end() || it->second == value) continue;
    throw InvalidArgument(absl::StrCat("the run in ", o_.out, " has ", key, " ", it->second,
                                       ", this one ", value, ": give the same, or another --out"));
  }
}

/// The newest good one, if there is any; refuses to go on where that isn't wanted or possible.
/// Files are rank 0's.
FoundCheckpoint TrainRun::FindCheckpoint() {
  if (!group_.first()) return {};
  FoundCheckpoint found = ValueOrThrow(FindLatest(o_.out));
  for (const SkippedCheckpoint& skipped : found.skipped) {
    progress_.Note(absl::StrCat("passed over ", skipped.path, ": ", skipped.reason));
  }
  if (found.path.empty() && found.skipped.empty()) return found;
  Require(o_.resume != "never", o_.out,
          " has checkpoints: leave out --resume never to go on from them, or give another --out");
  // To start anew here would in the end replace what a repair might still save.
  Require(!found.path.empty(), "no checkpoint in ", o_.out,
          " is good: restore one from a copy, or give another --out to start anew");
  CheckIdentity(found.manifest);
  return found;
}

/// The state to train from, where it is not the trainer's own: a checkpoint's, or --init-from's.
void TrainRun::LoadInitialState(const FoundCheckpoint& found) {
  if (resumes_) {
    LoadCheckpoint(found);
  } else if (!o_.init_from.empty()) {
    std::optional<TensorFileSet> weights;
    if (group_.first()) weights = ValueOrThrow(TensorFileSet::Open(o_.init_from));
    ThrowIfNotOk(LoadWeights(weights ? &*weights : nullptr, trainer_->parameters()));
    progress_.Note(absl::StrCat("weights from ", o_.init_from));
  }
  trainer_->set_start_step(start_step_);
  if (group_.first()) log_.emplace(ValueOrThrow(RunLog::Open(o_.out, start_step_)));
}

void TrainRun::LoadCheckpoint(const FoundCheckpoint& found) {
  std::optional<CheckpointReader> reader;
  if (group_.first()) reader = ValueOrThrow(CheckpointReader::Open(found.path));
  start_step_ =
      ValueOrThrow(LoadModelCheckpoint(reader ? &*reader : nullptr, trainer_->parameters()));
  const std::string metadata =
      BroadcastText(group_.communicator(), nlohmann::json(found.manifest.info.metadata).dump());
  if (LossScale* scale = trainer_->loss_scale(); scale != nullptr) {
    ThrowIfNotOk(scale->ReadFrom(nlohmann::json::parse(metadata)));
  }
  saved_step_ = start_step_;
  progress_.Note(absl::StrCat("going on from ", found.path, ", after step ", start_step_));
}

void TrainRun::Save(int64_t next_step) {
  if (saved_step_ == next_step) return;
  ReportPhase(Phase::kSave);
  CheckpointTexts texts = {{"config.json", GptConfigToJson(o_.gpt)}};
  if (data_.tokenizer != nullptr) texts["tokenizer.json"] = data_.tokenizer->Serialize();
  std::map<std::string, std::string> metadata = identity_;
  if (trainer_->loss_scale() != nullptr) trainer_->loss_scale()->WriteTo(metadata);
  const absl::StatusOr<std::string> saved = SaveModelCheckpoint(
      folder_ ? &*folder_ : nullptr, next_step, trainer_->parameters(), texts, metadata);
  std::vector<std::string> notes;
  if (!saved.ok()) {
    throw Error(absl::StrCat("the checkpoint of step ", next_step,
                             " could not be saved: ", std::string(saved.status().message()),
                             "; earlier ones are untouched"));
  }
  saved_step_ = next_step;
  if (!group_.first()) return;
  // Damaged ones that were passed over; only now, when there is something better.
  ThrowIfNotOk(DeleteLater(*folder_, next_step, &notes));
  for (const std::string& note : notes) progress_.Note(note);
  notes.clear();
  ThrowIfNotOk(KeepNewest(*folder_, next_step, o_.keep, &notes));
  for (const std::string& note : notes) {
    // That one goes as another comes is no news; that one can't be removed is.
    if (!absl::EndsWith(note, ": deleted")) progress_.Note(note);
  }
}

void TrainRun::LogOrThrow(const absl::Status& written) const {
  if (written.ok()) return;
  throw Error(absl::StrCat(std::string(written.message()),
                           "; checkpoints are untouched: make room, and run the same command "
                           "again to go on"));
}

void TrainRun::OnStep(const StepReport& report) {
  progress_.Step(report);
  if (report.result.skipped && report.result.loss_scale) {
    progress_.Note(absl::StrFormat(
        "step %d: skipped, as gradients overflowed; the loss is scaled by %g from here on",
        report.step, trainer_->loss_scale()->value()));
  }
  if (log_) LogOrThrow(log_->Step(report, device().allocator().stats().peak_reserved));
}

void TrainRun::OnEvaluation(int64_t step, double loss) {
  progress_.Evaluation(step, loss);
  if (log_) LogOrThrow(log_->Evaluation(step, loss));
}

void TrainRun::OnStepDone(int64_t next_step) {
  ProfileUpTo(next_step);
  // At the end also before the evaluation, which may be long.
  if (next_step % o_.checkpoint_interval == 0 || next_step == o_.trainer.steps) Save(next_step);
}

/// Traces a few steps behind the first, which is not like the others; the first, if there is only
/// one.
void TrainRun::ProfileUpTo(int64_t next_step) {
  if (o_.profile.empty()) return;
  const int64_t first = std::min(start_step_ + 1, o_.trainer.steps - 1);
  const int64_t end = std::min(first + kProfiledSteps, o_.trainer.steps);
  if (next_step == first) {
    StartTrace();
    tracing_ = true;
  }
  if (!tracing_ || (next_step < end && !Interrupted())) return;
  tracing_ = false;
  const absl::Status written = FinishTrace(o_.profile);
  progress_.Note(written.ok() ? absl::StrCat("trace of some steps: ", o_.profile)
                              : std::string(written.message()));
}

void TrainRun::Finish(const TrainingSummary& summary) {
  const MemoryStats memory = device().allocator().stats();
  if (o_.json) {
    nlohmann::ordered_json json = {{"steps", summary.next_step},
                                   {"train_loss", summary.train_loss},
                                   {"val_loss", nullptr},
                                   {"tokens_per_second", summary.tokens_per_second},
                                   {"step_seconds_median", summary.step_seconds_median},
                                   {"model_flops_per_second", summary.flops_per_second},
                                   {"peak_memory_bytes", memory.peak_reserved}};
    if (summary.val_loss) json["val_loss"] = *summary.val_loss;
    std::cout << json.dump() << std::endl;
    return;
  }
  progress_.Note(absl::StrFormat(
      "done: %d steps, training loss %.4f%s, %s, peak memory %.0f MiB", summary.next_step,
      summary.train_loss,
      summary.val_loss ? absl::StrFormat(", validation loss %.4f", *summary.val_loss) : "",
      WithPrefix(summary.tokens_per_second, "tokens/s"),
      static_cast<double>(memory.peak_reserved) / (1 << 20)));
  // At stage 3 no rank has the whole model.
  const bool whole = group_.size() == 1 || o_.trainer.zero.stage < 3;
  if (data_.tokenizer != nullptr && whole) {
    progress_.Note("a sample:");
    const SamplingOptions sampling{.temperature = 0.8, .top_k = 40, .seed = o_.trainer.seed};
    GenerateText(*model_, device(), *data_.tokenizer, StartOfSample(), 200, sampling, std::cout);
    std::cout << std::endl;
  }
  progress_.Note(absl::StrCat("checkpoints and log.jsonl lie in ", o_.out,
                              "; more text: pando sample --checkpoint ", o_.out));
}

/// A line break, or where the vocabulary has none, the first token of the data.
std::vector<int32_t> TrainRun::StartOfSample() const {
  auto ids = data_.tokenizer->Encode("\n");
  if (ids.ok() && !ids->empty()) return *std::move(ids);
  std::vector<int32_t> first(1);
  data_.train.Window(0, first);
  return first;
}

int TrainRun::Run() {
  if (o_.threads > 0) SetNumThreads(o_.threads);
  OpenDevice();
  data_ = OpenRunData(o_);
  BuildModel();
  if (!o_.ranks.automatic()) CheckMemory();
  FindIdentity();
  group_.Form(o_.ranks.group, device());
  CheckSameRun();
  PlanRanks();
  if (group_.first()) OpenFolder();
  const FoundCheckpoint found = FindCheckpoint();
  resumes_ = !BroadcastText(group_.communicator(), found.path).empty();
  o_.trainer.initialize = !resumes_ && o_.init_from.empty();
  trainer_ = std::make_unique<Trainer>(*model_, registry_, device(), data_.train, data_.validation,
                                       o_.trainer, group_.communicator());
  LoadInitialState(found);
  CatchInterrupts();
  ProfileUpTo(start_step_);
  const TrainingSummary summary = trainer_->Run(*this);
  Save(summary.next_step);
  group_.Leave();
  if (summary.stopped_early) {
    progress_.Note(absl::StrCat("interrupted and saved after step ", summary.next_step,
                                ": the same command goes on from there"));
    return kInterrupted;
  }
  if (const std::string report = EmulationReport(); !report.empty()) {
    std::cerr << report << std::endl;
  }
  if (group_.first()) Finish(summary);
  return kDone;
}

}  // namespace

Command AddTrainCommand(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = AddCommand(app, "train", "train or fine-tune a GPT");
  AddTrainOptions(*command, *options);
  return {command, [command, options] {
            CompleteTrainOptions(*command, *options);
            return TrainRun(*options).Run();
          }};
}

}  // namespace pando
