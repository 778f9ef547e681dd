#include "train/token_dataset.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/error.h"
#include "train/hash.h"
#include "train/mapped_file.h"

namespace pando {
namespace {

constexpr int64_t kHeaderBytes = 1024;  // 256 int32

// Copies and widens; returns the largest id, as unsigned, so that one comparison finds every bad
// one.
template <typename T>
uint32_t CopyTokens(const void* data, int64_t first, int64_t count, int32_t* out) {
  const T* in = static_cast<const T*>(data) + first;
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t id = in[i];
    largest = std::max(largest, id);
    out[i] = static_cast<int32_t>(id);
  }
  return largest;
}

uint32_t CopyTokens(const TokenSegment& segment, int64_t first, int64_t count, int32_t* out) {
  return segment.width == 2 ? CopyTokens<uint16_t>(segment.data, first, count, out)
                            : CopyTokens<uint32_t>(segment.data, first, count, out);
}

// Names the first token of `tokens`, which start at `first` of `segment`, that is no id.
std::string BadToken(const TokenSegment& segment, int64_t first, std::span<const int32_t> tokens,
                     int64_t vocab_size) {
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](int32_t id) {
    return static_cast<uint32_t>(id) >= vocab_size;
  });
  return absl::StrCat(segment.name, ": token ", first + (bad - tokens.begin()), " has the id ",
                      static_cast<uint32_t>(*bad), ", outside the vocabulary of ", vocab_size,
                      "; the file was made with another tokenizer, or is no token file");
}

}  // namespace

absl::StatusOr<TokenSegment> OpenTokenFile(const std::string& path) {
  auto file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const std::string_view bytes = (*file)->bytes();
  const auto size = static_cast<int64_t>(bytes.size());
  if (size == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  int32_t header[3] = {};
  std::memcpy(header, bytes.data(), std::min(bytes.size(), sizeof header));
  const auto [magic, version, count] = header;
  TokenSegment segment{.owner = *file, .data = bytes.data(), .name = path};
  if (magic != 20240520 && magic != 20240801) {
    if (size % 2 != 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is cut short: ", size,
                                                     " bytes is no whole number of uint16 tokens"));
    }
    segment.count = size / 2;
    return segment;
  }
  const int32_t known_version = magic == 20240520 ? 1 : 7;
  segment.width = magic == 20240520 ? 2 : 4;
  if (version != known_version) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": llm.c token file of version ", version,
                                                   "; version ", known_version, " is known"));
  }
  const int64_t want = kHeaderBytes + int64_t{count} * segment.width;
  if (count <= 0 || size != want) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": its header promises ", count, " tokens, a file of ", want,
                     " bytes, but it has ", size, "; it is cut short or damaged"));
  }
  segment.data = bytes.data() + kHeaderBytes;
  segment.count = count;
  return segment;
}

TokenDataset::TokenDataset(std::vector<TokenSegment> segments, int64_t vocab_size)
    : vocab_size_(vocab_size) {
  auto starts = std::make_shared<std::vector<int64_t>>();
  for (const TokenSegment& s : segments) {
    starts->push_back(size_);
    size_ += s.count;
  }
  starts_ = std::move(starts);
  segments_ = std::make_shared<const std::vector<TokenSegment>>(std::move(segments));
}

size_t TokenDataset::SegmentAt(int64_t position) const {
  const auto after = std::upper_bound(starts_->begin(), starts_->end(), position);
  return after - starts_->begin() - 1;
}

void TokenDataset::Window(int64_t start, std::span<int32_t> out) const {
  const auto length = static_cast<int64_t>(out.size());
  Require(start >= 0 && start <= size_ && length <= size_ - start, "data: a window of ", length,
          " tokens at ", start, " does not lie in the ", size_, " tokens there are");
  for (int64_t done = 0; done < length;) {
    const int64_t position = begin_ + start + done;
    const size_t index = SegmentAt(position);
    const TokenSegment& segment = (*segments_)[index];
    const int64_t first = position - (*starts_)[index];
    const int64_t count = std::min(segment.count - first, length - done);
    const auto part = out.subspan(done, count);
    if (CopyTokens(segment, first, count, part.data()) >= vocab_size_) {
      throw InvalidArgument(BadToken(segment, first, part, vocab_size_));
    }
    done += count;
  }
}

TokenDataset TokenDataset::Slice(int64_t begin, int64_t end) const {
  Require(begin >= 0 && begin <= end && end <= size_, "data: tokens ", begin, " to ", end,
          " are not a part of ", size_);
  TokenDataset part = *this;
  part.begin_ = begin_ + begin;
  part.size_ = end - begin;
  return part;
}

absl::Status TokenDataset::CheckTokens() const {
  constexpr int64_t kChunk = 1 << 16;
  constexpr int64_t kMost = int64_t{1} << 28;  // bytes
  if (segments_ == nullptr) return absl::OkStatus();
  std::vector<int32_t> ids(kChunk);
  for (const TokenSegment& segment : *segments_) {
    const int64_t count = std::min(segment.count, kMost / segment.width);
    for (int64_t first = 0; first < count; first += kChunk) {
      const int64_t n = std::min(kChunk, count - first);
      if (CopyTokens(segment, first, n, ids.data()) < vocab_size_) continue;
      return absl::InvalidArgumentError(
          BadToken(segment, first, std::span(ids).first(n), vocab_size_));
    }
  }
  return absl::OkStatus();
}

std::string TokenDataset::Fingerprint() const {
  constexpr int64_t kWindow = 64, kWindows = 4096;
  Fnv1a64 hash;
  hash.Add(&size_, sizeof size_);
  const int64_t all = (size_ + kWindow - 1) / kWindow;
  const int64_t windows = std::min(all, kWindows);
  std::vector<int32_t> ids(kWindow);
  for (int64_t i = 0; i < windows; ++i) {
    // Window i * all / windows, the product without overflow.
    const int64_t window = i * (all / windows) + i * (all % windows) / windows;
    const int64_t start = window * kWindow;
    const auto part = std::span(ids).first(std::min(kWindow, size_ - start));
    Window(start, part);
    hash.Add(part.data(), part.size_bytes());
  }
  return absl::StrFormat("%016x", hash.hash());
}

}  // namespace pando
