#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pando {

/// The Status of a failed system call: "PATH: cannot ACTION: reason; remedy". A full disk, quota or
/// file-size limit is ResourceExhausted, a missing file NotFound, a refusal PermissionDenied.
absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path);

/// An open file that closes itself. Every read and write is complete or an error: interrupted and
/// short calls are continued. Not thread-safe, but ReadAt may be called from several threads.
class File {
 public:
  static absl::StatusOr<File> OpenForReading(const std::string& path);

  /// Creates a file for appending. AlreadyExists if there is one: nothing is overwritten.
  static absl::StatusOr<File> CreateNew(const std::string& path);

  /// An existing file, to go on at its end.
  static absl::StatusOr<File> OpenForAppending(const std::string& path);

  File(File&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        path_(std::move(other.path_)),
        appended_(other.appended_),
        flushed_(other.flushed_) {}
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  const std::string& path() const { return path_; }

  /// Size in bytes; InvalidArgument if this is no regular file.
  absl::StatusOr<int64_t> Size() const;

  /// Fills `out` from byte `offset` on. DataLoss if the file ends before.
  absl::Status ReadAt(int64_t offset, absl::Span<uint8_t> out) const;

  absl::Status Append(absl::Span<const uint8_t> bytes);

  /// The same in one call of the system, and where it fails the file stays as it was: for lines,
  /// which a full disk must not cut.
  absl::Status AppendOrNothing(absl::Span<const uint8_t> bytes);

  /// Takes disk space for `bytes` bytes in all, so that a full disk is found before hours of
  /// writing and not at their end. Does nothing on file systems that can't; the size stays.
  absl::Status Reserve(int64_t bytes);

  /// Returns when everything appended is on the disk.
  absl::Status Sync();

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_;
  std::string path_;
  int64_t appended_ = 0;
  int64_t flushed_ = 0;  // the kernel has been told to start writing up to here
};

/// Makes creations, renames and removals inside `folder` durable. Does nothing where the file
/// system can't.
absl::Status SyncFolder(const std::string& folder);

/// rename(2): `to` is replaced atomically if it is a file.
absl::Status Rename(const std::string& from, const std::string& to);

/// Exchanges two existing names atomically; Unimplemented where the file system can't.
absl::Status ExchangeNames(const std::string& a, const std::string& b);

/// Bytes that an unprivileged user can still write on the file system that holds `path`.
absl::StatusOr<int64_t> FreeBytes(const std::string& path);

/// Whether something, of whatever kind, has this name.
bool PathExists(const std::string& path);

/// Whether `path` itself is a folder, or a regular file; a symbolic link is neither.
bool IsPlainFolder(const std::string& path);
bool IsPlainFile(const std::string& path);

/// Names in `folder`, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& folder);

/// The whole file; InvalidArgument if it is longer than `limit` bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit);

/// `folder/name`.
std::string JoinPath(absl::string_view folder, absl::string_view name);

/// Part of `path` before its last component: "." if it has only one.
std::string ParentFolder(const std::string& path);

/// `path` after its last '/'.
std::string BaseName(const std::string& path);

/// The bytes of `count` elements.
template <typename T>
absl::Span<const uint8_t> BytesOf(const T* data, int64_t count) {
  return {reinterpret_cast<const uint8_t*>(data), static_cast<size_t>(count) * sizeof(T)};
}
inline absl::Span<const uint8_t> BytesOf(absl::string_view text) {
  return BytesOf(text.data(), static_cast<int64_t>(text.size()));
}

}  // namespace pando
