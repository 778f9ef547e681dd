#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct XXH3_state_s;

namespace pando {

/// Files are checked in chunks of this many bytes, so that reading a part of one costs little more
/// than that part.
inline constexpr int64_t kChecksumChunkBytes = int64_t{16} << 20;

/// Checksums of a file: XXH3-64 of each chunk, and XXH3-128 over size, chunk size and those, which
/// stands for the whole file and yet costs no second pass over its bytes.
struct FileDigest {
  int64_t size = 0;                           ///< bytes
  int64_t chunk_bytes = kChecksumChunkBytes;  ///< all chunks but the last have this size
  std::vector<uint64_t> chunks;               ///< ceil(size / chunk_bytes)
  std::string whole;                          ///< 32 hexadecimal digits
};

/// Number of chunks of a file of `size` bytes.
constexpr int64_t ChunkCount(int64_t size, int64_t chunk_bytes) {
  return size / chunk_bytes + (size % chunk_bytes != 0 ? 1 : 0);
}

/// XXH3-64 (seed 0), the checksum of one chunk.
uint64_t Checksum64(absl::Span<const uint8_t> bytes);

/// What `whole` has to be for the other fields of `digest`.
std::string WholeChecksum(const FileDigest& digest);

/// 16 hexadecimal digits, and back; false if `text` is anything else.
std::string ChecksumToHex(uint64_t checksum);
bool ChecksumFromHex(absl::string_view text, uint64_t* checksum);

/// Computes a FileDigest from bytes that come in pieces of any size.
class DigestBuilder {
 public:
  explicit DigestBuilder(int64_t chunk_bytes = kChecksumChunkBytes);

  void Update(absl::Span<const uint8_t> bytes);

  /// The digest of all bytes so far; call it once, at the end.
  FileDigest Finish();

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };

  void EndChunk();

  std::unique_ptr<XXH3_state_s, FreeState> state_;
  FileDigest digest_;
  int64_t in_chunk_ = 0;  // bytes of the chunk that is being filled
};

}  // namespace pando
