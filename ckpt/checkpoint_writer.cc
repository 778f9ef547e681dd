#include "ckpt/checkpoint_writer.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/atomic_file.h"
#include "ckpt/checkpoint_folder.h"
#include "ckpt/checkpoint_reader.h"
#include "ckpt/file.h"
#include "engine/status.h"

namespace pando {
namespace {

absl::Status DeleteAndNote(const RunFolder& run, int64_t step, std::vector<std::string>* notes) {
  absl::Status status = DeleteCheckpoint(run.path(), step);
  if (!status.ok() && !absl::IsFailedPrecondition(status)) return status;
  notes->push_back(status.ok()
                       ? absl::StrCat(JoinPath(run.path(), StepFolderName(step)), ": deleted")
                       : std::string(status.message()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckpointWriter> CheckpointWriter::Begin(const RunFolder& run, CheckpointInfo info,
                                                         int64_t chunk_bytes) {
  PANDO_RETURN_IF_ERROR(CheckInfo(info));
  if (chunk_bytes <= 0) return absl::InvalidArgumentError("chunk_bytes has to be positive");
  CheckpointWriter writer(run.path(), std::move(info), chunk_bytes);
  const std::string folder =
      JoinPath(run.path(), TemporaryName(StepFolderName(writer.manifest_.info.data_step)));
  if (mkdir(folder.c_str(), 0777) != 0) return ErrnoStatus(errno, "create this folder", folder);
  writer.folder_ = folder;
  return writer;
}

CheckpointWriter::CheckpointWriter(std::string root, CheckpointInfo info, int64_t chunk_bytes)
    : root_(std::move(root)), chunk_bytes_(chunk_bytes) {
  manifest_.info = std::move(info);
}

CheckpointWriter::~CheckpointWriter() {
  // A failure is made good by CleanLeftovers at the next start.
  if (!folder_.empty()) RemoveCheckpointFolder(folder_).IgnoreError();
}

absl::Status CheckpointWriter::AddText(const std::string& name, absl::string_view text) {
  PANDO_ASSIGN_OR_RETURN(OutputFile file, CreateFile(name));
  PANDO_RETURN_IF_ERROR(file.Append(BytesOf(text)));
  return FinishFile(name, FileKind::kText, &file);
}

absl::Status CheckpointWriter::AddWeights(const std::string& name,
                                          const std::vector<TensorDecl>& tensors,
                                          const std::map<std::string, std::string>& metadata,
                                          const TensorSource& source) {
  return AddTensors(name, FileKind::kWeights, tensors, metadata, source);
}

absl::Status CheckpointWriter::AddState(const std::string& name,
                                        const std::vector<TensorDecl>& tensors,
                                        const TensorSource& source) {
  for (const TensorDecl& tensor : tensors) {
    PANDO_RETURN_IF_ERROR(
        states_.Add(tensor.name, tensor.dtype, tensor.shape, manifest_.files.size()));
  }
  return AddTensors(name, FileKind::kState, tensors, {}, source);
}

absl::StatusOr<std::string> CheckpointWriter::Commit() {
  if (folder_.empty()) return absl::FailedPreconditionError("the checkpoint is committed already");
  const int64_t step = manifest_.info.data_step;
  if (const absl::Status status = states_.CheckCovers(manifest_.info.flat_size); !status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint of step ", step, " is incomplete: ", status.message()));
  }
  PANDO_ASSIGN_OR_RETURN(const std::string text, FormatManifest(manifest_));
  PANDO_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(JoinPath(folder_, kManifestFile)));
  PANDO_RETURN_IF_ERROR(file.Append(BytesOf(text)));
  PANDO_RETURN_IF_ERROR(file.Finish().status());
  PANDO_RETURN_IF_ERROR(SyncFolder(folder_));
  PANDO_RETURN_IF_ERROR(PublishCheckpoint(root_, folder_, step));
  folder_.clear();
  return JoinPath(root_, StepFolderName(step));
}

absl::StatusOr<OutputFile> CheckpointWriter::CreateFile(const std::string& name) const {
  if (!IsCheckpointFileName(name) || name == kManifestFile) {
    return absl::InvalidArgumentError(
        absl::StrCat("a file of a checkpoint can't be named \"", name, "\""));
  }
  return OutputFile::Create(JoinPath(folder_, name), chunk_bytes_);
}

absl::Status CheckpointWriter::AddTensors(const std::string& name, FileKind kind,
                                          const std::vector<TensorDecl>& tensors,
                                          const std::map<std::string, std::string>& metadata,
                                          const TensorSource& source) {
  if (!absl::EndsWith(name, ".safetensors")) {
    return absl::InvalidArgumentError(
        absl::StrCat("a file of tensors has to be named .safetensors, not \"", name, "\""));
  }
  PANDO_ASSIGN_OR_RETURN(OutputFile file, CreateFile(name));
  PANDO_RETURN_IF_ERROR(WriteSafetensors(&file, tensors, metadata, source));
  return FinishFile(name, kind, &file);
}

absl::Status CheckpointWriter::FinishFile(const std::string& name, FileKind kind,
                                          OutputFile* file) {
  PANDO_ASSIGN_OR_RETURN(FileDigest digest, file->Finish());
  manifest_.files.push_back({name, kind, std::move(digest)});
  return absl::OkStatus();
}

absl::Status KeepNewest(const RunFolder& run, int64_t step, int keep,
                        std::vector<std::string>* notes) {
  PANDO_ASSIGN_OR_RETURN(std::vector<int64_t> steps, ListSteps(run.path()));
  std::reverse(steps.begin(), steps.end());
  int kept = 0;
  for (const int64_t candidate : steps) {
    if (candidate > step) continue;
    if (!CheckFiles(JoinPath(run.path(), StepFolderName(candidate))).ok()) continue;
    if (kept < std::max(keep, 1)) {
      ++kept;
    } else {
      PANDO_RETURN_IF_ERROR(DeleteAndNote(run, candidate, notes));
    }
  }
  return absl::OkStatus();
}

absl::Status DeleteLater(const RunFolder& run, int64_t step, std::vector<std::string>* notes) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(run.path()));
  for (const int64_t candidate : steps) {
    if (candidate > step) PANDO_RETURN_IF_ERROR(DeleteAndNote(run, candidate, notes));
  }
  return absl::OkStatus();
}

}  // namespace pando
