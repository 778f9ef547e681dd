#include "ckpt/checkpoint_reader.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ckpt/byte_source.h"
#include "ckpt/checkpoint_folder.h"
#include "ckpt/file.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;
constexpr int64_t kMaxTextBytes = int64_t{1} << 30;

// A message of `status`, with the path in front.
absl::Status At(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<Manifest> ReadManifest(const std::string& folder) {
  const std::string path = JoinPath(folder, kManifestFile);
  if (!PathExists(path)) {
    return absl::NotFoundError(
        absl::StrCat(folder,
                     PathExists(folder) ? ": is no checkpoint, or an unfinished one: it has no "
                                        : ": there is no such folder with a ",
                     kManifestFile));
  }
  PANDO_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxManifestBytes));
  return ParseManifest(path, text);
}

absl::Status CheckStepOfName(const std::string& folder, const Manifest& manifest) {
  int64_t step;
  if (!ParseStepFolderName(BaseName(folder), &step) || step == manifest.info.data_step) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(folder, ": its manifest is of step ",
                                                 manifest.info.data_step,
                                                 "; give the folder its own name back"));
}

absl::Status CheckSize(const std::string& folder, const CheckpointFile& file) {
  const std::string path = JoinPath(folder, file.name);
  PANDO_ASSIGN_OR_RETURN(const File opened, File::OpenForReading(path));
  PANDO_ASSIGN_OR_RETURN(const int64_t size, opened.Size());
  if (size == file.digest.size) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": has ", size, " bytes instead of ",
                                          file.digest.size, ": it was truncated or changed"));
}

}  // namespace

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(Manifest manifest, CheckFiles(path));
  CheckpointReader reader(path, std::move(manifest));
  PANDO_RETURN_IF_ERROR(reader.OpenFiles());
  return reader;
}

absl::StatusOr<SafetensorsReader> CheckpointReader::OpenTensors(const CheckpointFile& file) const {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source,
                         OpenVerified(JoinPath(path_, file.name), file.digest));
  return SafetensorsReader::Open(std::move(source));
}

absl::Status CheckpointReader::OpenFiles() {
  std::vector<SafetensorsReader> weights;
  for (const CheckpointFile& file : manifest_.files) {
    if (file.kind == FileKind::kText) continue;
    PANDO_ASSIGN_OR_RETURN(SafetensorsReader reader, OpenTensors(file));
    if (file.kind == FileKind::kWeights) {
      weights.push_back(std::move(reader));
      continue;
    }
    for (const TensorEntry& tensor : reader.tensors()) {
      // A type that can't be read is as wrong as any but f32.
      const absl::Status added = state_index_.Add(tensor.name, tensor.dtype.value_or(DType::kI64),
                                                  tensor.shape, state_files_.size());
      if (!added.ok()) return At(reader.path(), added);
    }
    state_files_.push_back(std::move(reader));
  }
  if (const absl::Status status = state_index_.CheckCovers(manifest_.info.flat_size);
      !status.ok()) {
    return At(path_, status);
  }
  PANDO_ASSIGN_OR_RETURN(weights_, TensorFileSet::FromReaders(std::move(weights)));
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointReader::ReadText(absl::string_view name) const {
  const CheckpointFile* file = manifest_.Find(name);
  if (file == nullptr || file->kind != FileKind::kText) {
    return absl::NotFoundError(absl::StrCat(path_, ": holds no text \"", name, "\""));
  }
  if (file->digest.size > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": \"", name, "\" is too long for a text"));
  }
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source,
                         OpenVerified(JoinPath(path_, file->name), file->digest));
  std::string text(static_cast<size_t>(file->digest.size), '\0');
  PANDO_RETURN_IF_ERROR(source->ReadAt(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

absl::Status CheckpointReader::ReadState(const std::string& state, int64_t begin,
                                         absl::Span<float> out) {
  const auto count = static_cast<int64_t>(out.size());
  if (begin < 0 || count > manifest_.info.flat_size || begin > manifest_.info.flat_size - count) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": elements ", begin, " to ", begin, "+",
                                              count, " asked for, but the flat space has ",
                                              manifest_.info.flat_size));
  }
  const auto places = state_index_.Find(state, begin, begin + count);
  if (!places.ok()) return At(path_, places.status());
  for (const StateIndex::Place& place : *places) {
    const StatePiece& piece = place.piece;
    const int64_t from = std::max(begin, piece.begin);
    const int64_t to = std::min(begin + count, piece.end);
    PANDO_RETURN_IF_ERROR(state_files_[place.file].Read(
        StateTensorName(state, piece.begin, piece.end), from - piece.begin,
        out.subspan(static_cast<size_t>(from - begin), static_cast<size_t>(to - from))));
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadParameterState(const std::string& state,
                                                  absl::string_view parameter, int64_t first,
                                                  absl::Span<float> out) {
  const auto& layout = manifest_.info.layout;
  const auto found = std::find_if(layout.begin(), layout.end(),
                                  [&](const FlatParameter& p) { return p.name == parameter; });
  if (found == layout.end()) {
    return absl::NotFoundError(absl::StrCat(path_, ": has no parameter \"", parameter, "\""));
  }
  const int64_t elements = *ElementCount(found->shape);
  const auto count = static_cast<int64_t>(out.size());
  if (first < 0 || count > elements || first > elements - count) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": elements ", first, " to ", first, "+",
                                              count, " of \"", parameter,
                                              "\" asked for, but it has ", elements));
  }
  return ReadState(state, found->offset + first, out);
}

std::vector<const SafetensorsReader*> CheckpointReader::TensorFiles() const {
  std::vector<const SafetensorsReader*> files;
  for (const SafetensorsReader& reader : weights_.readers()) files.push_back(&reader);
  for (const SafetensorsReader& reader : state_files_) files.push_back(&reader);
  return files;
}

absl::StatusOr<Manifest> CheckFiles(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(path));
  PANDO_RETURN_IF_ERROR(CheckStepOfName(path, manifest));
  for (const CheckpointFile& file : manifest.files) {
    PANDO_RETURN_IF_ERROR(CheckSize(path, file));
  }
  return manifest;
}

absl::Status Verify(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(path));
  for (const CheckpointFile& file : reader.manifest().files) {
    PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source,
                           OpenVerified(JoinPath(path, file.name), file.digest));
    PANDO_RETURN_IF_ERROR(ReadThrough(source.get()));
  }
  return absl::OkStatus();
}

absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& root, int64_t max_step) {
  PANDO_ASSIGN_OR_RETURN(std::vector<int64_t> steps, ListSteps(root));
  std::reverse(steps.begin(), steps.end());
  FoundCheckpoint found;
  for (const int64_t step : steps) {
    if (step > max_step) continue;
    const std::string path = JoinPath(root, StepFolderName(step));
    if (const absl::Status status = Verify(path); !status.ok()) {
      found.skipped.push_back({path, std::string(status.message())});
      continue;
    }
    PANDO_ASSIGN_OR_RETURN(found.manifest, CheckFiles(path));
    found.path = path;
    break;
  }
  return found;
}

CheckpointSummary Inspect(const std::string& path, bool verify) {
  CheckpointSummary summary;
  summary.path = path;
  if (auto manifest = ReadManifest(path); manifest.ok()) summary.manifest = *std::move(manifest);
  const auto reader = CheckpointReader::Open(path);
  absl::Status status = reader.status();
  if (reader.ok()) {
    for (const SafetensorsReader* file : reader->TensorFiles()) {
      for (const TensorEntry& tensor : file->tensors()) {
        summary.tensors.push_back({BaseName(file->path()), tensor});
      }
    }
    if (verify) status = Verify(path);
  }
  summary.is_valid = status.ok();
  summary.is_verified = verify && status.ok();
  summary.reason = std::string(status.message());
  return summary;
}

}  // namespace pando
