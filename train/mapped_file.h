#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pando {

/// A file's bytes, mapped read-only: a data set larger than memory costs only what is touched.
/// The file must not be shortened while it is mapped.
class MappedFile {
 public:
  /// Maps the regular file at `path`. An empty file is legal and has no bytes. The error names the
  /// path and the system's reason.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// The bytes; valid as long as this object.
  std::string_view bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, std::string_view bytes) : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::string_view bytes_;
};

}  // namespace pando
