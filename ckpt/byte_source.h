#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ckpt/checksum.h"
#include "ckpt/file.h"

namespace pando {

/// Bytes of a file that can be read anywhere. pread and not mmap, so that a file that shrinks or a
/// disk that fails is a Status and not a signal. Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual const std::string& path() const = 0;
  virtual int64_t size() const = 0;

  /// Fills `out` from byte `offset` on; OutOfRange if that leaves the file.
  virtual absl::Status ReadAt(int64_t offset, absl::Span<uint8_t> out) = 0;
};

/// A file as it is on the disk.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(const std::string& path);

/// A file with known checksums: no byte leaves ReadAt that was not verified in the same memory it
/// is taken from. A mismatch is DataLoss naming the chunk. `digest` must be consistent (chunk
/// count, whole), or it is DataLoss as well, as is another size of the file.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenVerified(const std::string& path,
                                                         FileDigest digest);

/// Reads all of `source`, which is enough to verify a source that verifies.
absl::Status ReadThrough(ByteSource* source);

}  // namespace pando
