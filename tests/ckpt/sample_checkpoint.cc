#include "tests/ckpt/sample_checkpoint.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ckpt/checkpoint_reader.h"
#include "ckpt/convert.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr char kConfigText[] = "{\"layers\": 2}\n";
constexpr const char* kStates[] = {kMasterState, kExpAvgState, kExpAvgSqState};

std::string TokenizerText(int64_t step) {
  return absl::StrCat("{\"step\": ", step, ", \"pad\": \"", std::string(3000, 'x'), "\"}\n");
}

std::vector<TensorDecl> WeightDecls() {
  return {{"h.0.w", DType::kBF16, {16, 20}}, {"h.0.b", DType::kF32, {10}}};
}

// The flat offset of a tensor's first element.
int64_t OffsetOf(const std::string& name) { return name == "h.0.w" ? 0 : 384; }

TensorSource StateSource(int64_t step) {
  return [step](const TensorDecl& tensor, int64_t first, int64_t count, void* out) {
    const StatePiece piece = *ParseStateTensorName(tensor.name);
    for (int64_t i = 0; i < count; ++i) {
      static_cast<float*>(out)[i] = SampleValue(piece.state, step, piece.begin + first + i);
    }
    return absl::OkStatus();
  };
}

TensorSource WeightSource(int64_t step) {
  return [step](const TensorDecl& tensor, int64_t first, int64_t count, void* out) {
    for (int64_t i = 0; i < count; ++i) {
      const float value = SampleValue(kMasterState, step, OffsetOf(tensor.name) + first + i);
      ConvertElements(DType::kF32, &value, tensor.dtype,
                      static_cast<uint8_t*>(out) + i * SizeOf(tensor.dtype), 1);
    }
    return absl::OkStatus();
  };
}

absl::Status Expect(bool ok, const std::string& what) {
  return ok ? absl::OkStatus() : absl::InternalError(absl::StrCat("wrong ", what));
}

absl::Status CheckState(CheckpointReader* reader, const std::string& state, int64_t step) {
  std::vector<float> values(kSampleFlatSize);
  PANDO_RETURN_IF_ERROR(reader->ReadState(state, 0, absl::MakeSpan(values)));
  for (int64_t i = 0; i < kSampleFlatSize; ++i) {
    PANDO_RETURN_IF_ERROR(Expect(values[i] == SampleValue(state, step, i), state));
  }
  return absl::OkStatus();
}

}  // namespace

CheckpointInfo SampleInfo(int64_t step) {
  CheckpointInfo info;
  info.data_step = step;
  info.optimizer_step = step - 1;
  info.lineage = "first";
  info.flat_size = kSampleFlatSize;
  info.layout = {{"h.0.w", {16, 20}, 0}, {"h.0.b", {10}, 384}};
  info.metadata = {{"loss_scale", "65536"}};
  return info;
}

float SampleValue(const std::string& state, int64_t step, int64_t i) {
  // Small whole numbers: exact in bf16.
  return static_cast<float>((i * 7 + step * 3 + static_cast<int64_t>(state.size()) * 11) % 251);
}

absl::Status AddSampleFiles(CheckpointWriter* writer, int64_t step) {
  PANDO_RETURN_IF_ERROR(
      writer->AddWeights(kWeightsFile, WeightDecls(), {{"format", "pt"}}, WeightSource(step)));
  std::vector<TensorDecl> first;
  std::vector<TensorDecl> second;
  for (const char* state : kStates) {
    first.push_back(StateTensorDecl(state, 0, 256));
    first.push_back(StateTensorDecl(state, 256, 256));
    second.push_back(StateTensorDecl(state, 256, kSampleFlatSize));
  }
  PANDO_RETURN_IF_ERROR(writer->AddState(kOptimizerFile, first, StateSource(step)));
  PANDO_RETURN_IF_ERROR(writer->AddState("optimizer-2.safetensors", second, StateSource(step)));
  PANDO_RETURN_IF_ERROR(writer->AddText("config.json", kConfigText));
  return writer->AddText("tokenizer.json", TokenizerText(step));
}

absl::Status SaveSample(const RunFolder& run, int64_t step) {
  PANDO_ASSIGN_OR_RETURN(CheckpointWriter writer,
                         CheckpointWriter::Begin(run, SampleInfo(step), kSampleChunkBytes));
  PANDO_RETURN_IF_ERROR(AddSampleFiles(&writer, step));
  return writer.Commit().status();
}

absl::Status CheckSample(const std::string& path, int64_t step) {
  PANDO_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(path));
  const CheckpointInfo& info = reader.manifest().info;
  PANDO_RETURN_IF_ERROR(Expect(info.data_step == step && info.optimizer_step == step - 1, "step"));
  PANDO_RETURN_IF_ERROR(Expect(info.metadata == SampleInfo(step).metadata, "metadata"));
  PANDO_ASSIGN_OR_RETURN(const std::string config, reader.ReadText("config.json"));
  PANDO_RETURN_IF_ERROR(Expect(config == kConfigText, "config.json"));
  PANDO_ASSIGN_OR_RETURN(const std::string tokenizer, reader.ReadText("tokenizer.json"));
  PANDO_RETURN_IF_ERROR(Expect(tokenizer == TokenizerText(step), "tokenizer.json"));
  for (const char* state : kStates) PANDO_RETURN_IF_ERROR(CheckState(&reader, state, step));
  for (const TensorDecl& tensor : WeightDecls()) {
    std::vector<float> values(static_cast<size_t>(*ElementCount(tensor.shape)));
    PANDO_RETURN_IF_ERROR(reader.weights().Read(tensor.name, 0, absl::MakeSpan(values)));
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t flat = OffsetOf(tensor.name) + static_cast<int64_t>(i);
      PANDO_RETURN_IF_ERROR(
          Expect(values[i] == SampleValue(kMasterState, step, flat), tensor.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace pando
