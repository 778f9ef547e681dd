#include "ckpt/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/atomic_file.h"
#include "ckpt/checkpoint_folder.h"
#include "ckpt/file.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr absl::string_view kMarkerText = "{\"format\": \"pando-run\", \"version\": 1}\n";

// What may lie in a folder that is to become a run's: nothing, but for a disk's own folder, our
// lock, and temporary files of a program killed before it could write the marker.
bool MayPrecedeMarker(const std::string& name) {
  std::string base;
  return name == "lost+found" || name == kRunLockFile || ParseTemporaryName(name, &base);
}

absl::Status CreateFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? ErrnoStatus(error.value(), "create this folder", path) : absl::OkStatus();
}

absl::Status CheckOwnership(const std::string& root) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(root));
  if (PathExists(JoinPath(root, kRunMarkerFile))) {
    // Other versions of the text are other versions of what lies beside it.
    constexpr int64_t kMaxMarkerBytes = 4096;
    PANDO_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(JoinPath(root, kRunMarkerFile), kMaxMarkerBytes));
    if (text == kMarkerText) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(root, ": ", kRunMarkerFile,
                     " in it is not of this version of Pando; choose "
                     "another folder"));
  }
  const auto foreign = std::find_if_not(names.begin(), names.end(), MayPrecedeMarker);
  if (foreign == names.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(root, ": is not empty (\"", *foreign,
                                                    "\") and no run's folder (no ", kRunMarkerFile,
                                                    "); choose a new or an empty folder"));
}

// Creates, syncs and removes a small file.
absl::Status ProbeWriting(const std::string& root) {
  const std::string path = JoinPath(root, TemporaryName("pando-probe"));
  absl::Status status = [&]() -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
    PANDO_RETURN_IF_ERROR(file.Append(BytesOf(kMarkerText)));
    return file.Finish().status();
  }();
  if (unlink(path.c_str()) != 0 && status.ok()) return ErrnoStatus(errno, "remove", path);
  return status;
}

absl::Status CheckSpace(const std::string& root, int64_t checkpoint_bytes) {
  constexpr double kGiB = 1 << 30;
  PANDO_ASSIGN_OR_RETURN(const int64_t free_bytes, FreeBytes(root));
  // Two, because the last good one is deleted only when the next is durable.
  if (free_bytes / 2 >= checkpoint_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s: has %.2f GiB free, but two checkpoints of %.2f GiB need room at once; free some space, "
      "or choose a folder on another disk",
      root, static_cast<double>(free_bytes) / kGiB, static_cast<double>(checkpoint_bytes) / kGiB));
}

}  // namespace

absl::StatusOr<RunFolder> RunFolder::Prepare(const std::string& root, int64_t checkpoint_bytes) {
  PANDO_RETURN_IF_ERROR(CreateFolder(root));
  PANDO_RETURN_IF_ERROR(CheckOwnership(root));
  PANDO_RETURN_IF_ERROR(ProbeWriting(root));
  RunFolder folder(root);
  PANDO_RETURN_IF_ERROR(folder.Lock());
  if (!PathExists(JoinPath(root, kRunMarkerFile))) {
    PANDO_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(root, kRunMarkerFile), kMarkerText));
  }
  if (folder.lock_fd_ >= 0) PANDO_RETURN_IF_ERROR(CleanLeftovers(root, &folder.notes_));
  PANDO_RETURN_IF_ERROR(CheckSpace(root, checkpoint_bytes));
  return folder;
}

RunFolder::~RunFolder() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::Status RunFolder::Lock() {
  const std::string path = JoinPath(path_, kRunLockFile);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    std::array<char, 256> holder = {};
    const ssize_t length = pread(fd, holder.data(), holder.size() - 1, 0);
    close(fd);
    if (error == EWOULDBLOCK) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ": is in use by ", length > 0 ? holder.data() : "another program",
                       "; wait until that has ended, or choose another folder"));
    }
    notes_.push_back(absl::StrCat(path_, ": can't be locked (",
                                  std::generic_category().message(error),
                                  "): make sure yourself that no other run writes there"));
    return absl::OkStatus();
  }
  lock_fd_ = fd;
  std::array<char, 128> host = {};
  gethostname(host.data(), host.size() - 1);
  const std::string holder = absl::StrCat("process ", getpid(), " on ", host.data());
  // Only for the message above: a failure does no harm.
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size())) {
    notes_.push_back(absl::StrCat(path, ": its content could not be written"));
  }
  return absl::OkStatus();
}

}  // namespace pando
