#include "ckpt/byte_source.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/status.h"

namespace pando {
namespace {

absl::Status CheckRange(const ByteSource& source, int64_t offset, size_t count) {
  const auto n = static_cast<int64_t>(count);
  if (offset >= 0 && n <= source.size() && offset <= source.size() - n) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(source.path(), ": bytes ", offset, " to ", offset, "+",
                                            n, " asked for, but it has ", source.size()));
}

class FileSource : public ByteSource {
 public:
  FileSource(File file, int64_t size) : file_(std::move(file)), size_(size) {}

  const std::string& path() const override { return file_.path(); }
  int64_t size() const override { return size_; }

  absl::Status ReadAt(int64_t offset, absl::Span<uint8_t> out) override {
    PANDO_RETURN_IF_ERROR(CheckRange(*this, offset, out.size()));
    return file_.ReadAt(offset, out);
  }

 private:
  File file_;
  int64_t size_;
};

class VerifiedSource : public ByteSource {
 public:
  VerifiedSource(File file, FileDigest digest)
      : file_(std::move(file)), digest_(std::move(digest)) {}

  const std::string& path() const override { return file_.path(); }
  int64_t size() const override { return digest_.size; }

  absl::Status ReadAt(int64_t offset, absl::Span<uint8_t> out) override {
    PANDO_RETURN_IF_ERROR(CheckRange(*this, offset, out.size()));
    while (!out.empty()) {
      const int64_t chunk = offset / digest_.chunk_bytes;
      const int64_t skip = offset % digest_.chunk_bytes;
      const auto piece = out.subspan(0, static_cast<size_t>(ChunkSize(chunk) - skip));
      if (static_cast<int64_t>(piece.size()) == ChunkSize(chunk)) {
        PANDO_RETURN_IF_ERROR(ReadChunk(chunk, piece));
      } else {
        PANDO_RETURN_IF_ERROR(CacheChunk(chunk));
        std::memcpy(piece.data(), cache_.data() + skip, piece.size());
      }
      out.remove_prefix(piece.size());
      offset += static_cast<int64_t>(piece.size());
    }
    return absl::OkStatus();
  }

 private:
  int64_t ChunkSize(int64_t chunk) const {
    return std::min(digest_.chunk_bytes, digest_.size - chunk * digest_.chunk_bytes);
  }

  absl::Status ReadChunk(int64_t chunk, absl::Span<uint8_t> out) {
    PANDO_RETURN_IF_ERROR(file_.ReadAt(chunk * digest_.chunk_bytes, out));
    if (Checksum64(out) == digest_.chunks[static_cast<size_t>(chunk)]) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        path(), ": wrong checksum of the ", out.size(), " bytes from ", chunk * digest_.chunk_bytes,
        " on: it was changed or damaged after it was written; use another checkpoint"));
  }

  absl::Status CacheChunk(int64_t chunk) {
    if (cached_ == chunk) return absl::OkStatus();
    cached_ = -1;
    cache_.resize(static_cast<size_t>(ChunkSize(chunk)));
    PANDO_RETURN_IF_ERROR(ReadChunk(chunk, absl::MakeSpan(cache_)));
    cached_ = chunk;
    return absl::OkStatus();
  }

  File file_;
  FileDigest digest_;
  std::vector<uint8_t> cache_;  // the last chunk of which a part was read
  int64_t cached_ = -1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(File file, File::OpenForReading(path));
  PANDO_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  return std::make_unique<FileSource>(std::move(file), size);
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenVerified(const std::string& path,
                                                         FileDigest digest) {
  PANDO_ASSIGN_OR_RETURN(File file, File::OpenForReading(path));
  PANDO_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  if (size != digest.size) {
    return absl::DataLossError(absl::StrCat(path, ": has ", size, " bytes instead of ", digest.size,
                                            ": it was truncated or changed; use another "
                                            "checkpoint"));
  }
  if (digest.chunk_bytes <= 0 ||
      ChunkCount(digest.size, digest.chunk_bytes) != static_cast<int64_t>(digest.chunks.size()) ||
      WholeChecksum(digest) != digest.whole) {
    return absl::DataLossError(absl::StrCat(path,
                                            ": its recorded checksums contradict each other; "
                                            "use another checkpoint"));
  }
  return std::make_unique<VerifiedSource>(std::move(file), std::move(digest));
}

absl::Status ReadThrough(ByteSource* source) {
  std::vector<uint8_t> buffer(static_cast<size_t>(std::min(source->size(), kChecksumChunkBytes)));
  for (int64_t offset = 0; offset < source->size(); offset += kChecksumChunkBytes) {
    const auto part = absl::MakeSpan(buffer).subspan(
        0, static_cast<size_t>(std::min(kChecksumChunkBytes, source->size() - offset)));
    PANDO_RETURN_IF_ERROR(source->ReadAt(offset, part));
  }
  return absl::OkStatus();
}

}  // namespace pando
