#include "ckpt/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/status.h"

namespace pando {
namespace {

// How much is appended before the kernel is told to start writing it: without this the disk idles
// until the final fsync.
constexpr int64_t kFlushBytes = int64_t{32} << 20;

// read(2) and write(2) transfer at most 2^31 - 4096 bytes a call.
constexpr size_t kCallBytes = size_t{1} << 30;

absl::StatusOr<int> OpenFd(const std::string& path, int flags, const char* action) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoStatus(errno, action, path);
  return fd;
}

bool HasMode(const std::string& path, mode_t type) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && (info.st_mode & S_IFMT) == type;
}

}  // namespace

absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path) {
  const std::string text =
      absl::StrCat(path, ": cannot ", action, ": ", std::generic_category().message(error_number));
  switch (error_number) {
    case ENOSPC:
      return absl::ResourceExhaustedError(
          absl::StrCat(text, "; free some space or choose a folder on another disk"));
    case EDQUOT:
      return absl::ResourceExhaustedError(
          absl::StrCat(text, "; free some of your quota or choose a folder elsewhere"));
    case EFBIG:
      return absl::ResourceExhaustedError(
          absl::StrCat(text, "; raise the file size limit (ulimit -f)"));
    case ENOENT:
      return absl::NotFoundError(absl::StrCat(text, "; check the path"));
    case EEXIST:
    case ENOTEMPTY:
      return absl::AlreadyExistsError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(text, "; change its permissions or choose another path"));
    case EROFS:
      return absl::PermissionDeniedError(absl::StrCat(text, "; choose a writable disk"));
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(absl::StrCat(text, "; check the path"));
    case EIO:
      return absl::DataLossError(absl::StrCat(text, "; the disk or its connection is failing"));
    default:
      return absl::UnknownError(text);
  }
}

absl::StatusOr<File> File::OpenForReading(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(const int fd, OpenFd(path, O_RDONLY, "open"));
  return File(fd, path);
}

absl::StatusOr<File> File::CreateNew(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(const int fd, OpenFd(path, O_WRONLY | O_CREAT | O_EXCL, "create"));
  return File(fd, path);
}

absl::StatusOr<File> File::OpenForAppending(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(const int fd, OpenFd(path, O_WRONLY | O_APPEND, "open"));
  File file(fd, path);
  PANDO_ASSIGN_OR_RETURN(file.appended_, file.Size());
  file.flushed_ = file.appended_;
  return file;
}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(appended_, other.appended_);
  std::swap(flushed_, other.flushed_);
  return *this;
}

File::~File() {
  // What must not be lost has been synced before: close has nothing more to report.
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<int64_t> File::Size() const {
  struct stat info;
  if (fstat(fd_, &info) != 0) return ErrnoStatus(errno, "examine", path_);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": is no regular file; check the path"));
  }
  return int64_t{info.st_size};
}

absl::Status File::ReadAt(int64_t offset, absl::Span<uint8_t> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), std::min(out.size(), kCallBytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read", path_);
    if (n == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": ends at byte ", offset, ", ", out.size(),
                                              " bytes too early: it was truncated"));
    }
    out.remove_prefix(static_cast<size_t>(n));
    offset += n;
  }
  return absl::OkStatus();
}

absl::Status File::Append(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), std::min(bytes.size(), kCallBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write", path_);
    if (n == 0) return ErrnoStatus(ENOSPC, "write", path_);
    bytes.remove_prefix(static_cast<size_t>(n));
    appended_ += n;
  }
  if (appended_ - flushed_ >= kFlushBytes) {
    // Only a hint: a failure shows in Sync.
    sync_file_range(fd_, flushed_, appended_ - flushed_, SYNC_FILE_RANGE_WRITE);
    flushed_ = appended_;
  }
  return absl::OkStatus();
}

absl::Status File::AppendOrNothing(absl::Span<const uint8_t> bytes) {
  const int64_t before = appended_;
  absl::Status appended = Append(bytes);
  if (appended.ok() || appended_ == before) return appended;
  // Part of it found room. If not even this works, there is nothing left to try.
  if (ftruncate(fd_, before) == 0) appended_ = before;
  return appended;
}

absl::Status File::Reserve(int64_t bytes) {
  if (bytes <= 0) return absl::OkStatus();
  int result;
  do {
    result = fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("take ", bytes, " bytes of disk space"), path_);
}

absl::Status File::Sync() {
  int result;
  do {
    result = fsync(fd_);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? absl::OkStatus() : ErrnoStatus(errno, "write to the disk", path_);
}

absl::Status SyncFolder(const std::string& folder) {
  PANDO_ASSIGN_OR_RETURN(const int fd, OpenFd(folder, O_RDONLY | O_DIRECTORY, "open"));
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  // EINVAL: this file system knows no fsync of folders.
  return error == 0 || error == EINVAL ? absl::OkStatus()
                                       : ErrnoStatus(error, "write to the disk", folder);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("rename ", from, " to this name"), to);
}

absl::Status ExchangeNames(const std::string& a, const std::string& b) {
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
    return absl::UnimplementedError("this file system can't exchange two names");
  }
  return ErrnoStatus(errno, absl::StrCat("exchange it with ", a), b);
}

absl::StatusOr<int64_t> FreeBytes(const std::string& path) {
  struct statvfs info;
  if (statvfs(path.c_str(), &info) != 0) return ErrnoStatus(errno, "ask for free space", path);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

bool PathExists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

bool IsPlainFolder(const std::string& path) { return HasMode(path, S_IFDIR); }
bool IsPlainFile(const std::string& path) { return HasMode(path, S_IFREG); }

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
  if (dir == nullptr) return ErrnoStatus(errno, "list", folder);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(dir.get());
    if (entry == nullptr && errno != 0) return ErrnoStatus(errno, "list", folder);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit) {
  PANDO_ASSIGN_OR_RETURN(const File file, File::OpenForReading(path));
  PANDO_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  if (size > limit) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has ", size, " bytes, more than the ",
                                                   limit, " that such a file can have"));
  }
  std::string content(static_cast<size_t>(size), '\0');
  PANDO_RETURN_IF_ERROR(
      file.ReadAt(0, {reinterpret_cast<uint8_t*>(content.data()), content.size()}));
  return content;
}

std::string JoinPath(absl::string_view folder, absl::string_view name) {
  const bool has_slash = !folder.empty() && folder.back() == '/';
  return absl::StrCat(folder, has_slash ? "" : "/", name);
}

std::string ParentFolder(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string BaseName(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

}  // namespace pando
