#include "train/bpe_tokenizer.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "train/bpe_merger.h"

namespace pando {
namespace {

// Finds added tokens in text: the leftmost, and of those that begin there the longest.
class AddedTokenFinder {
 public:
  struct Found {
    size_t begin, end;
    int32_t id;
  };

  explicit AddedTokenFinder(std::vector<BpeDescription::AddedToken> tokens)
      : tokens_(std::move(tokens)) {
    std::stable_sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) {
      return a.content.size() > b.content.size();
    });
    for (const auto& t : tokens_) (t.special ? special_ : always_).set(First(t.content));
  }

  /// The next token at or after `from`; an empty one at the end of `text` if there is none.
  Found Next(std::string_view text, size_t from, SpecialTokens special) const {
    const bool all = special == SpecialTokens::kRecognise;
    const std::bitset<256> first = all ? always_ | special_ : always_;
    if (first.none()) return {text.size(), text.size(), -1};
    for (size_t i = from; i < text.size(); ++i) {
      if (!first[First(text.substr(i))]) continue;
      for (const auto& t : tokens_) {
        if (t.special && !all) continue;
        if (text.substr(i, t.content.size()) == t.content) return {i, i + t.content.size(), t.id};
      }
    }
    return {text.size(), text.size(), -1};
  }

 private:
  static uint8_t First(std::string_view text) { return static_cast<uint8_t>(text[0]); }

  std::vector<BpeDescription::AddedToken> tokens_;  // longest first
  std::bitset<256> special_, always_;               // first bytes
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(BpeDescription description, Splitter splitter);

  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              SpecialTokens special) const override;
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const override;
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  std::string Serialize() const override { return ToTokenizerJson(description_); }

 private:
  // The working state of one Encode. Pieces repeat, so their ids are remembered, as a place in the
  // output: no lock, no copy, and nothing to keep afterwards.
  struct Work {
    struct Seen {
      size_t begin, count;
    };
    BpeMerger::Scratch scratch;
    absl::flat_hash_map<std::string_view, Seen> seen;
    std::vector<int32_t> ids;
  };
  static constexpr size_t kMaxSeen = 1 << 18;

  absl::Status EncodeOrdinary(std::string_view text, Work* work) const;
  void EncodePiece(std::string_view piece, Work* work) const;

  BpeDescription description_;
  Splitter splitter_;
  BpeMerger merger_;
  AddedTokenFinder added_;
  std::vector<std::string> bytes_;                        // by id; "" where there is no token
  absl::flat_hash_map<std::string_view, int32_t> whole_;  // with ignore_merges: keys in bytes_
  std::optional<int32_t> end_of_text_;
};

BpeTokenizer::BpeTokenizer(BpeDescription description, Splitter splitter)
    : description_(std::move(description)),
      splitter_(std::move(splitter)),
      merger_(description_),
      added_(description_.added) {
  for (const std::string& token : description_.tokens) bytes_.push_back(TokenBytes(token));
  if (description_.ignore_merges) {
    for (size_t id = 0; id < bytes_.size(); ++id) {
      whole_.emplace(bytes_[id], static_cast<int32_t>(id));
    }
    for (const auto& t : description_.added) whole_.erase(bytes_[t.id]);
  }
  for (const auto& t : description_.added) {
    bytes_[t.id] = t.content;
    const bool ends = t.content == "<|endoftext|>" || t.content == "<|end_of_text|>";
    if (ends && t.special) end_of_text_ = t.id;
  }
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::Encode(std::string_view text,
                                                          SpecialTokens special) const {
  Work work;
  work.ids.reserve(text.size() / 4 + 16);
  for (size_t position = 0; position < text.size();) {
    const AddedTokenFinder::Found found = added_.Next(text, position, special);
    const absl::Status status =
        EncodeOrdinary(text.substr(position, found.begin - position), &work);
    if (!status.ok()) return status;
    if (found.id >= 0) work.ids.push_back(found.id);
    position = found.end;
  }
  return std::move(work.ids);
}

absl::Status BpeTokenizer::EncodeOrdinary(std::string_view text, Work* work) const {
  if (text.empty()) return absl::OkStatus();
  if (description_.add_prefix_space && text[0] != ' ') {
    // A copy, so what was remembered of earlier pieces stays valid, but not what comes of this one.
    const std::string spaced = absl::StrCat(" ", absl::string_view(text.data(), text.size()));
    Work own{.scratch = {}, .seen = {}, .ids = std::move(work->ids)};
    absl::Status status = EncodeOrdinary(spaced, &own);
    work->ids = std::move(own.ids);
    return status;
  }
  Splitter::Cursor cursor(splitter_, text);
  for (std::string_view piece; cursor.Next(&piece);) {
    if (piece.size() > BpeMerger::kMaxPiece) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a single piece of text of ", piece.size(),
                       " bytes, without a place to cut, is too long for a byte-level BPE"));
    }
    EncodePiece(piece, work);
  }
  return cursor.status();
}

void BpeTokenizer::EncodePiece(std::string_view piece, Work* work) const {
  const auto [entry, is_new] = work->seen.try_emplace(piece, Work::Seen{work->ids.size(), 0});
  if (!is_new) {
    for (size_t i = 0; i < entry->second.count; ++i) {
      const int32_t id = work->ids[entry->second.begin + i];
      work->ids.push_back(id);
    }
    return;
  }
  const size_t begin = work->ids.size();
  const auto whole = whole_.find(piece);
  if (whole != whole_.end()) {
    work->ids.push_back(whole->second);
  } else {
    merger_.Encode(piece, &work->scratch, &work->ids);
  }
  entry->second.count = work->ids.size() - begin;
  if (work->seen.size() > kMaxSeen) work->seen.clear();
}

absl::StatusOr<std::string> BpeTokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size() || bytes_[id].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("BPE tokenizer: id ", id, " is not in the vocabulary of ", vocab_size()));
    }
    text += bytes_[id];
  }
  return text;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeBpeTokenizer(BpeDescription description,
                                                                  const std::string& name) {
  absl::StatusOr<Splitter> splitter = Splitter::Create(description.pattern);
  if (!splitter.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", splitter.status().message()));
  }
  return std::make_shared<BpeTokenizer>(std::move(description), *std::move(splitter));
}

}  // namespace pando
