#include "ckpt/checkpoint_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "ckpt/atomic_file.h"
#include "ckpt/file.h"
#include "ckpt/manifest.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr absl::string_view kStepPrefix = "step-";
constexpr absl::string_view kTrashPrefix = ".trash-";
constexpr absl::string_view kAsidePrefix = ".aside-";

// OK if all in `folder` are files that a checkpoint may hold.
absl::Status CheckNothingForeign(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!IsCheckpointFileName(name) || !IsPlainFile(JoinPath(folder, name))) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder, ": not removed, because \"", name,
                       "\" in it is no file of a checkpoint; move that away or remove the folder "
                       "yourself"));
    }
  }
  return absl::OkStatus();
}

absl::Status Unlink(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus(errno, "remove", path);
}

// Whether `name` is PREFIX step-N SUFFIX with a unique suffix; stores the step's folder name.
bool ParseMarkedName(absl::string_view name, absl::string_view prefix, std::string* step_name) {
  if (!absl::ConsumePrefix(&name, prefix)) return false;
  const size_t dash = name.find('-', kStepPrefix.size());
  if (dash == absl::string_view::npos || !IsUniqueSuffix(name.substr(dash))) return false;
  *step_name = std::string(name.substr(0, dash));
  int64_t step;
  return ParseStepFolderName(*step_name, &step);
}

// The old checkpoint of a step, after a new one has taken its name.
absl::Status DiscardReplaced(const std::string& old, const std::string& final_path) {
  absl::Status removed = RemoveCheckpointFolder(old);
  if (!absl::IsFailedPrecondition(removed)) return removed;
  return Rename(old, absl::StrCat(final_path, ".old", UniqueSuffix()));
}

absl::Status CleanOne(const std::string& root, const std::string& name,
                      std::vector<std::string>* notes) {
  const std::string path = JoinPath(root, name);
  std::string base;
  int64_t step;
  if (ParseTemporaryName(name, &base) && IsPlainFile(path)) {
    notes->push_back(absl::StrCat(path, ": removed, left by a program that was killed"));
    return Unlink(path);
  }
  if (!IsPlainFolder(path)) return absl::OkStatus();
  if (ParseMarkedName(name, kAsidePrefix, &base) && !PathExists(JoinPath(root, base))) {
    notes->push_back(absl::StrCat(path, ": named ", base, " again, as nothing has replaced it"));
    PANDO_RETURN_IF_ERROR(Rename(path, JoinPath(root, base)));
    return SyncFolder(root);
  }
  const bool is_unfinished = ParseTemporaryName(name, &base) && ParseStepFolderName(base, &step);
  if (!is_unfinished && !ParseMarkedName(name, kAsidePrefix, &base) &&
      !ParseMarkedName(name, kTrashPrefix, &base)) {
    return absl::OkStatus();
  }
  const absl::Status removed = RemoveCheckpointFolder(path);
  notes->push_back(removed.ok() ? absl::StrCat(path, ": removed, left by a program that was killed")
                                : std::string(removed.message()));
  return absl::IsFailedPrecondition(removed) ? absl::OkStatus() : removed;
}

}  // namespace

std::string StepFolderName(int64_t step) { return absl::StrFormat("%s%08d", kStepPrefix, step); }

bool ParseStepFolderName(absl::string_view name, int64_t* step) {
  absl::string_view digits = name;
  return absl::ConsumePrefix(&digits, kStepPrefix) && absl::SimpleAtoi(digits, step) &&
         *step >= 0 && StepFolderName(*step) == name;
}

absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& root) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(root));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    int64_t step;
    if (ParseStepFolderName(name, &step)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::Status RemoveCheckpointFolder(const std::string& folder) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  PANDO_RETURN_IF_ERROR(CheckNothingForeign(folder, names));
  // Without its manifest it is nothing, whatever happens to the rest.
  PANDO_RETURN_IF_ERROR(Unlink(JoinPath(folder, kManifestFile)));
  for (const std::string& name : names) {
    PANDO_RETURN_IF_ERROR(Unlink(JoinPath(folder, name)));
  }
  return rmdir(folder.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "remove", folder);
}

absl::Status PublishCheckpoint(const std::string& root, const std::string& temporary, int64_t step,
                               bool may_exchange) {
  const std::string name = StepFolderName(step);
  const std::string final_path = JoinPath(root, name);
  if (!PathExists(final_path)) {
    PANDO_RETURN_IF_ERROR(Rename(temporary, final_path));
    return SyncFolder(root);
  }
  std::string old = temporary;
  const absl::Status exchanged =
      may_exchange ? ExchangeNames(temporary, final_path) : absl::UnimplementedError("not wanted");
  if (absl::IsUnimplemented(exchanged)) {
    old = JoinPath(root, absl::StrCat(kAsidePrefix, name, UniqueSuffix()));
    PANDO_RETURN_IF_ERROR(Rename(final_path, old));
    if (absl::Status status = Rename(temporary, final_path); !status.ok()) {
      Rename(old, final_path).IgnoreError();  // CleanLeftovers would do it at the next start
      return status;
    }
  } else {
    PANDO_RETURN_IF_ERROR(exchanged);
  }
  PANDO_RETURN_IF_ERROR(SyncFolder(root));
  return DiscardReplaced(old, final_path);
}

absl::Status DeleteCheckpoint(const std::string& root, int64_t step) {
  const std::string name = StepFolderName(step);
  const std::string path = JoinPath(root, name);
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(path));
  PANDO_RETURN_IF_ERROR(CheckNothingForeign(path, names));
  const std::string trash = JoinPath(root, absl::StrCat(kTrashPrefix, name, UniqueSuffix()));
  PANDO_RETURN_IF_ERROR(Rename(path, trash));
  PANDO_RETURN_IF_ERROR(SyncFolder(root));
  return RemoveCheckpointFolder(trash);
}

absl::Status CleanLeftovers(const std::string& root, std::vector<std::string>* notes) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(root));
  for (const std::string& name : names) {
    PANDO_RETURN_IF_ERROR(CleanOne(root, name, notes));
  }
  return absl::OkStatus();
}

}  // namespace pando
