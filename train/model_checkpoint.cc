#include "train/model_checkpoint.h"

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dist/zero/flat_access.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr char kHuggingFacePrefix[] = "transformer.";

struct NamedState {
  const char* name;
  FlatState state;
};
constexpr NamedState kStates[] = {{kMasterState, FlatState::kMaster},
                                  {kExpAvgState, FlatState::kExpAvg},
                                  {kExpAvgSqState, FlatState::kExpAvgSq}};

FlatState StateOf(const std::string& name) {
  return std::find_if(std::begin(kStates), std::end(kStates),
                      [&name](const NamedState& s) { return s.name == name; })
      ->state;
}

std::span<float> Floats(void* out, int64_t count) {
  return {static_cast<float*>(out), static_cast<size_t>(count)};
}

CheckpointInfo InfoOf(int64_t next_step, Zero& parameters) {
  CheckpointInfo info;
  info.data_step = next_step;
  info.optimizer_step = parameters.optimizer().steps();
  info.lineage = "0";
  info.flat_size = parameters.layout().size();
  for (const FlatLayout::Entry& e : parameters.layout().entries()) {
    info.layout.push_back({e.parameter->name(), e.parameter->shape().dims(), e.offset});
  }
  return info;
}

absl::Status SameLayout(const Manifest& manifest, const Zero& parameters, const std::string& path) {
  const auto& ours = parameters.layout().entries();
  const auto& theirs = manifest.info.layout;
  bool same = ours.size() == theirs.size() && manifest.info.flat_size == parameters.layout().size();
  for (size_t i = 0; same && i < ours.size(); ++i) {
    same = ours[i].parameter->name() == theirs[i].name &&
           ours[i].parameter->shape().dims() == theirs[i].shape &&
           ours[i].offset == theirs[i].offset;
  }
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      " is a checkpoint of another model: give the options it was trained with, or another "
      "--out"));
}

/// What rank 0 does for SaveModelCheckpoint.
absl::StatusOr<std::string> WriteCheckpoint(const RunFolder& run, CheckpointInfo info,
                                            const FlatLayout& layout, FlatAccess& access,
                                            const CheckpointTexts& texts) {
  PANDO_ASSIGN_OR_RETURN(CheckpointWriter writer, CheckpointWriter::Begin(run, std::move(info)));
  for (const auto& [name, text] : texts) PANDO_RETURN_IF_ERROR(writer.AddText(name, text));

  std::vector<TensorDecl> weights;
  std::map<std::string, int64_t> offsets;
  for (const FlatLayout::Entry& e : layout.entries()) {
    weights.push_back({e.parameter->name(), DType::kF32, e.parameter->shape().dims()});
    offsets[e.parameter->name()] = e.offset;
  }
  PANDO_RETURN_IF_ERROR(writer.AddWeights(
      kWeightsFile, weights, {{"format", "pt"}},
      [&](const TensorDecl& tensor, int64_t first, int64_t count, void* out) {
        access.Read(FlatState::kMaster, offsets.at(tensor.name) + first, Floats(out, count));
        return absl::OkStatus();
      }));

  std::vector<TensorDecl> states;
  for (const NamedState& s : kStates) states.push_back(StateTensorDecl(s.name, 0, layout.size()));
  PANDO_RETURN_IF_ERROR(writer.AddState(
      kOptimizerFile, states,
      [&](const TensorDecl& tensor, int64_t first, int64_t count, void* out) {
        access.Read(StateOf(ParseStateTensorName(tensor.name)->state), first, Floats(out, count));
        return absl::OkStatus();
      }));
  return writer.Commit();
}

/// What rank 0 does for LoadModelCheckpoint.
absl::Status ReadCheckpoint(CheckpointReader& reader, const Zero& parameters, FlatAccess& access) {
  PANDO_RETURN_IF_ERROR(SameLayout(reader.manifest(), parameters, reader.path()));
  constexpr int64_t kPiece = int64_t{1} << 22;
  std::vector<float> piece;
  for (const NamedState& s : kStates) {
    for (int64_t begin = 0; begin < parameters.layout().size(); begin += kPiece) {
      piece.resize(static_cast<size_t>(std::min(kPiece, parameters.layout().size() - begin)));
      PANDO_RETURN_IF_ERROR(reader.ReadState(s.name, begin, absl::MakeSpan(piece)));
      access.Write(s.state, begin, piece);
    }
  }
  return absl::OkStatus();
}

using WeightSink = std::function<void(const FlatLayout::Entry&, std::span<const float>)>;
absl::Status ReadWeights(TensorFileSet& weights, const FlatLayout& layout, const WeightSink& sink);

}  // namespace

absl::StatusOr<std::string> SaveModelCheckpoint(
    const RunFolder* run, int64_t next_step, Zero& parameters, const CheckpointTexts& texts,
    const std::map<std::string, std::string>& metadata) {
  FlatAccess access(parameters);
  if (run == nullptr) {
    PANDO_RETURN_IF_ERROR(access.Serve());
    return std::string();
  }
  CheckpointInfo info = InfoOf(next_step, parameters);
  info.metadata = metadata;
  absl::StatusOr<std::string> path =
      WriteCheckpoint(*run, std::move(info), parameters.layout(), access, texts);
  PANDO_RETURN_IF_ERROR(access.Finish(path.status()));
  return path;
}

absl::StatusOr<int64_t> LoadModelCheckpoint(CheckpointReader* reader, Zero& parameters) {
  FlatAccess access(parameters);
  PANDO_RETURN_IF_ERROR(reader == nullptr
                            ? access.Serve()
                            : access.Finish(ReadCheckpoint(*reader, parameters, access)));
  double steps[] = {0, 0};
  if (reader != nullptr) {
    steps[0] = static_cast<double>(reader->manifest().info.data_step);
    steps[1] = static_cast<double>(reader->manifest().info.optimizer_step);
  }
  parameters.AllReduce(steps, ReduceOp::kMax);
  parameters.ValuesFromMasters();
  parameters.optimizer().set_steps(static_cast<int64_t>(steps[1]));
  return static_cast<int64_t>(steps[0]);
}

absl::Status LoadWeights(TensorFileSet* weights, Zero& parameters) {
  FlatAccess access(parameters);
  const auto write = [&access](const FlatLayout::Entry& e, std::span<const float> values) {
    access.Write(FlatState::kMaster, e.offset, values);
  };
  PANDO_RETURN_IF_ERROR(weights == nullptr
                            ? access.Serve()
                            : access.Finish(ReadWeights(*weights, parameters.layout(), write)));
  parameters.ValuesFromMasters();
  return absl::OkStatus();
}

absl::Status LoadWeights(TensorFileSet& weights, FlatParameters& parameters) {
  PANDO_RETURN_IF_ERROR(
      ReadWeights(weights, parameters.layout(),
                  [&parameters](const FlatLayout::Entry& e, std::span<const float> values) {
                    parameters.WriteParameter(*e.parameter, values);
                  }));
  parameters.ValuesFromMasters();
  return absl::OkStatus();
}

namespace {

absl::Status ReadWeights(TensorFileSet& weights, const FlatLayout& layout, const WeightSink& sink) {
  std::set<std::string> unused;
  for (const std::string& name : weights.Names()) {
    // Masks are buffers of older versions; the head is the token embedding.
    const bool mask = absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".masked_bias");
    if (!mask && name != "lm_head.weight") unused.insert(name);
  }
  for (const FlatLayout::Entry& e : layout.entries()) {
    const Parameter& p = *e.parameter;
    std::string name = p.name();
    if (weights.Find(name) == nullptr) name.insert(0, kHuggingFacePrefix);
    const TensorEntry* entry = weights.Find(name);
    if (entry == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the weights lack ", p.name(), ": they are of another model"));
    }
    if (entry->shape != p.shape().dims()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the weights' ", name, " is ", Shape(entry->shape).ToString(),
                       ", the model's ", p.shape().ToString(), ": they are of another model"));
    }
    std::vector<float> values(static_cast<size_t>(p.shape().numel()));
    PANDO_RETURN_IF_ERROR(weights.Read<float>(name, 0, absl::MakeSpan(values)));
    sink(e, values);
    unused.erase(name);
  }
  if (!unused.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the weights have ", *unused.begin(), " and ",
                                                   unused.size() - 1,
                                                   " more that the model has no place for"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t CheckpointBytes(const ParameterRegistry& registry) {
  return 4 * registry.numel() + 12 * FlatLayout(registry.parameters()).size() + (1 << 20);
}

}  // namespace pando
