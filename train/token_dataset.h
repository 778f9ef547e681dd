#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando {

/// Token ids that lie one after the other, in a mapped file or in memory.
struct TokenSegment {
  std::shared_ptr<const void> owner;  ///< keeps `data` alive
  const void* data = nullptr;         ///< uint16 or uint32, as `width` says
  int width = 2;                      ///< bytes per token: 2 or 4
  int64_t count = 0;                  ///< tokens
  std::string name;                   ///< the file, for messages
};

/// Maps a file of token ids. Two forms are known: nanoGPT's, raw little-endian uint16; and llm.c's,
/// which has a header of 256 int32 (magic 20240520, version 1, count; then uint16) or (magic
/// 20240801, version 7, count; then uint32). Fails, naming the file, if it is missing, empty, or
/// not of the size that its header or its type asks for.
absl::StatusOr<TokenSegment> OpenTokenFile(const std::string& path);

/// A sequence of token ids, read-only: segments end to end, or a part of such. A cheap value:
/// copies share the tokens.
class TokenDataset {
 public:
  TokenDataset() = default;

  /// Joins `segments`. Ids must lie in [0, vocab_size).
  TokenDataset(std::vector<TokenSegment> segments, int64_t vocab_size);

  /// Tokens.
  int64_t size() const { return size_; }
  int64_t vocab_size() const { return vocab_size_; }

  /// Copies the tokens from `start` on to `out`, as many as `out` holds. Throws InvalidArgument if
  /// they are not all there, or if one is outside the vocabulary, naming its file and position.
  void Window(int64_t start, std::span<int32_t> out) const;

  /// The tokens [begin, end) of this one.
  TokenDataset Slice(int64_t begin, int64_t end) const;

  /// Reads the first tokens of every segment (256 MB of each at most) for ids outside the
  /// vocabulary, so that most mistakes show at the start; Window finds the rest.
  absl::Status CheckTokens() const;

  /// A hash, in 16 hexadecimal digits, of the size and of up to 4096 windows of 64 tokens spread
  /// evenly over the data (the whole, if short): what ranks and checkpoints compare.
  std::string Fingerprint() const;

 private:
  // The segment that holds token `position` of all segments, and where it starts.
  size_t SegmentAt(int64_t position) const;

  std::shared_ptr<const std::vector<TokenSegment>> segments_;
  std::shared_ptr<const std::vector<int64_t>> starts_;  // of each segment, counted from the first
  int64_t begin_ = 0;                                   // of this part
  int64_t size_ = 0;
  int64_t vocab_size_ = 0;
};

}  // namespace pando
