#include "ckpt/checksum.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace pando {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

uint64_t Checksum64(absl::Span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string WholeChecksum(const FileDigest& digest) {
  std::vector<uint64_t> words = {static_cast<uint64_t>(digest.size),
                                 static_cast<uint64_t>(digest.chunk_bytes)};
  words.insert(words.end(), digest.chunks.begin(), digest.chunks.end());
  const XXH128_hash_t hash = XXH3_128bits(words.data(), words.size() * sizeof(words[0]));
  return absl::StrCat(ChecksumToHex(hash.high64), ChecksumToHex(hash.low64));
}

std::string ChecksumToHex(uint64_t checksum) {
  return absl::StrCat(absl::Hex(checksum, absl::kZeroPad16));
}

bool ChecksumFromHex(absl::string_view text, uint64_t* checksum) {
  if (text.size() != 16) return false;
  *checksum = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return false;
    *checksum = *checksum << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return true;
}

void DigestBuilder::FreeState::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

DigestBuilder::DigestBuilder(int64_t chunk_bytes) : state_(XXH3_createState()) {
  digest_.chunk_bytes = chunk_bytes;
  XXH3_64bits_reset(state_.get());
}

void DigestBuilder::Update(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const int64_t room = digest_.chunk_bytes - in_chunk_;
    const auto piece = bytes.subspan(0, static_cast<size_t>(room));
    XXH3_64bits_update(state_.get(), piece.data(), piece.size());
    bytes.remove_prefix(piece.size());
    in_chunk_ += static_cast<int64_t>(piece.size());
    digest_.size += static_cast<int64_t>(piece.size());
    if (in_chunk_ == digest_.chunk_bytes) EndChunk();
  }
}

FileDigest DigestBuilder::Finish() {
  if (in_chunk_ > 0) EndChunk();
  digest_.whole = WholeChecksum(digest_);
  return digest_;
}

void DigestBuilder::EndChunk() {
  digest_.chunks.push_back(XXH3_64bits_digest(state_.get()));
  XXH3_64bits_reset(state_.get());
  in_chunk_ = 0;
}

}  // namespace pando
