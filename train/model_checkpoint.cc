#include "train/model_checkpoint.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr char kHuggingFacePrefix[] = "transformer.";

/// A flat f32 tensor's elements [first, first + count), to the host.
void ReadFlat(const Tensor& flat, int64_t first, int64_t count, void* out) {
  flat.Narrow(first, count)
      .ToHost(std::span<float>(static_cast<float*>(out), static_cast<size_t>(count)));
}

/// The flat tensor that holds a state; throws nothing, the names are ours.
Tensor StateTensor(const std::string& state, FlatParameters& parameters, AdamW& optimizer) {
  if (state == kExpAvgState) return optimizer.exp_avg();
  if (state == kExpAvgSqState) return optimizer.exp_avg_sq();
  return parameters.masters();
}

constexpr const char* kStates[] = {kMasterState, kExpAvgState, kExpAvgSqState};

CheckpointInfo InfoOf(int64_t next_step, const FlatParameters& parameters, const AdamW& optimizer) {
  CheckpointInfo info;
  info.data_step = next_step;
  info.optimizer_step = optimizer.steps();
  info.lineage = "0";
  info.flat_size = parameters.layout().size();
  for (const FlatLayout::Entry& e : parameters.layout().entries()) {
    info.layout.push_back({e.parameter->name(), e.parameter->shape().dims(), e.offset});
  }
  return info;
}

absl::Status SameLayout(const Manifest& manifest, const FlatParameters& parameters,
                        const std::string& path) {
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

}  // namespace

absl::StatusOr<std::string> SaveModelCheckpoint(
    const RunFolder& run, int64_t next_step, FlatParameters& parameters, AdamW& optimizer,
    const CheckpointTexts& texts, const std::map<std::string, std::string>& metadata) {
  CheckpointInfo info = InfoOf(next_step, parameters, optimizer);
  info.metadata = metadata;
  PANDO_ASSIGN_OR_RETURN(CheckpointWriter writer, CheckpointWriter::Begin(run, std::move(info)));
  for (const auto& [name, text] : texts) PANDO_RETURN_IF_ERROR(writer.AddText(name, text));

  std::vector<TensorDecl> weights;
  std::map<std::string, int64_t> offsets;
  for (const FlatLayout::Entry& e : parameters.layout().entries()) {
    weights.push_back({e.parameter->name(), DType::kF32, e.parameter->shape().dims()});
    offsets[e.parameter->name()] = e.offset;
  }
  PANDO_RETURN_IF_ERROR(writer.AddWeights(
      kWeightsFile, weights, {{"format", "pt"}},
      [&](const TensorDecl& tensor, int64_t first, int64_t count, void* out) {
        ReadFlat(parameters.masters(), offsets.at(tensor.name) + first, count, out);
        return absl::OkStatus();
      }));

  std::vector<TensorDecl> states;
  for (const char* state : kStates) {
    states.push_back(StateTensorDecl(state, 0, parameters.layout().size()));
  }
  PANDO_RETURN_IF_ERROR(
      writer.AddState(kOptimizerFile, states,
                      [&](const TensorDecl& tensor, int64_t first, int64_t count, void* out) {
                        const std::string state = ParseStateTensorName(tensor.name)->state;
                        ReadFlat(StateTensor(state, parameters, optimizer), first, count, out);
                        return absl::OkStatus();
                      }));
  return writer.Commit();
}

absl::StatusOr<int64_t> LoadModelCheckpoint(CheckpointReader& reader, FlatParameters& parameters,
                                            AdamW& optimizer) {
  PANDO_RETURN_IF_ERROR(SameLayout(reader.manifest(), parameters, reader.path()));
  constexpr int64_t kPiece = int64_t{1} << 22;
  std::vector<float> piece;
  for (const char* state : kStates) {
    Tensor flat = StateTensor(state, parameters, optimizer);
    for (int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
      piece.resize(static_cast<size_t>(std::min(kPiece, flat.numel() - begin)));
      PANDO_RETURN_IF_ERROR(reader.ReadState(state, begin, absl::MakeSpan(piece)));
      const auto count = static_cast<int64_t>(piece.size());
      flat.Narrow(begin, count).CopyFrom(Tensor::FromHost(piece, {count}, flat.device()));
    }
  }
  parameters.ValuesFromMasters();
  optimizer.set_steps(reader.manifest().info.optimizer_step);
  return reader.manifest().info.data_step;
}

absl::Status LoadWeights(TensorFileSet& weights, FlatParameters& parameters) {
  std::set<std::string> unused;
  for (const std::string& name : weights.Names()) {
    // Masks are buffers of older versions; the head is the token embedding.
    const bool mask = absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".masked_bias");
    if (!mask && name != "lm_head.weight") unused.insert(name);
  }
  for (const FlatLayout::Entry& e : parameters.layout().entries()) {
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
    parameters.WriteParameter(p, values);
    unused.erase(name);
  }
  if (!unused.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the weights have ", *unused.begin(), " and ",
                                                   unused.size() - 1,
                                                   " more that the model has no place for"));
  }
  parameters.ValuesFromMasters();
  return absl::OkStatus();
}

int64_t CheckpointBytes(const ParameterRegistry& registry) {
  return 4 * registry.numel() + 12 * FlatLayout(registry.parameters()).size() + (1 << 20);
}

}  // namespace pando
