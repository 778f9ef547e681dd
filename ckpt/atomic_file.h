#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ckpt/checksum.h"
#include "ckpt/file.h"

namespace pando {

/// A new file written from front to back, its checksums computed on the way.
class OutputFile {
 public:
  /// AlreadyExists if there is such a file.
  static absl::StatusOr<OutputFile> Create(const std::string& path,
                                           int64_t chunk_bytes = kChecksumChunkBytes);

  const std::string& path() const { return file_.path(); }

  /// See File::Reserve.
  absl::Status Reserve(int64_t bytes) { return file_.Reserve(bytes); }

  absl::Status Append(absl::Span<const uint8_t> bytes);

  /// Makes the content durable and returns its checksums. Nothing may be appended afterwards.
  absl::StatusOr<FileDigest> Finish();

 private:
  OutputFile(File file, int64_t chunk_bytes) : file_(std::move(file)), digest_(chunk_bytes) {}

  File file_;
  DigestBuilder digest_;
};

/// A file that appears under its name complete and durable, or not at all: it is written under a
/// temporary name in the same folder (`.NAME.tmp-PID-RANDOM`), synced, and renamed. A file of that
/// name is replaced by Commit; until then, and after any failure, it stays as it was.
class AtomicFile {
 public:
  static absl::StatusOr<AtomicFile> Create(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, "")),
        out_(std::move(other.out_)) {}
  AtomicFile& operator=(AtomicFile&&) = delete;

  /// Removes the temporary file unless committed.
  ~AtomicFile();

  OutputFile& out() { return out_; }

  absl::StatusOr<FileDigest> Commit();

 private:
  AtomicFile(std::string path, std::string temporary, OutputFile out)
      : path_(std::move(path)), temporary_(std::move(temporary)), out_(std::move(out)) {}

  std::string path_;
  std::string temporary_;  // empty once renamed
  OutputFile out_;
};

/// Replaces or creates the file `path`, atomically and durably.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view content);

/// `.NAME.tmp-PID-RANDOM`: a name that no other process and no earlier call has taken.
std::string TemporaryName(absl::string_view name);

/// If `temporary` is what TemporaryName makes of some name, returns true and stores that in
/// `*name`.
bool ParseTemporaryName(absl::string_view temporary, std::string* name);

/// `-PID-RANDOM`, and whether `text` is such a suffix.
std::string UniqueSuffix();
bool IsUniqueSuffix(absl::string_view text);

}  // namespace pando
