#include "train/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pando {
namespace {

absl::Status SystemError(const std::string& path, absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(path, "cannot be opened");
  struct stat info;
  void* data = nullptr;
  absl::Status status;
  if (fstat(fd, &info) != 0) {
    status = SystemError(path, "cannot be examined");
  } else if (!S_ISREG(info.st_mode)) {
    status = absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  } else if (info.st_size > 0) {
    data = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) status = SystemError(path, "cannot be mapped into memory");
  }
  close(fd);  // the mapping stays
  if (!status.ok()) return status;
  return std::shared_ptr<const MappedFile>(new MappedFile(
      path, std::string_view(static_cast<const char*>(data), static_cast<size_t>(info.st_size))));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

}  // namespace pando
