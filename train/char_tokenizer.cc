#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "train/simple_tokenizers.h"
#include "train/utf8.h"

namespace pando {
namespace {

absl::Status InvalidUtf8(size_t offset) {
  return absl::InvalidArgumentError(
      absl::StrCat("char tokenizer: the text is not valid UTF-8 at byte ", offset,
                   "; use the byte tokenizer for such data"));
}

class CharTokenizer final : public Tokenizer {
 public:
  /// `code_points` ascending and not empty.
  explicit CharTokenizer(const std::vector<int32_t>& code_points)
      : ids_(code_points.back() + 1, -1) {
    for (const int32_t c : code_points) {
      ids_[c] = static_cast<int32_t>(characters_.size());
      AppendUtf8(c, &characters_.emplace_back());
    }
  }

  int64_t vocab_size() const override { return static_cast<int64_t>(characters_.size()); }

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, SpecialTokens) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = DecodeUtf8(text.substr(i));
      if (c.code_point < 0) return InvalidUtf8(i);
      const bool known = c.code_point < static_cast<int64_t>(ids_.size());
      const int32_t id = known ? ids_[c.code_point] : -1;
      if (id < 0) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "char tokenizer: the character U+%04X at byte %d is not among the %d of the training "
            "text",
            c.code_point, i, characters_.size()));
      }
      ids.push_back(id);
      i += c.length;
    }
    return ids;
  }

  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("char tokenizer: id ", id, " is outside a vocabulary of ", vocab_size()));
      }
      text += characters_[id];
    }
    return text;
  }

  std::string Serialize() const override {
    std::string all;
    for (const std::string& c : characters_) all += c;
    return nlohmann::json{{"pando_tokenizer", "char"}, {"characters", all}}.dump();
  }

 private:
  std::vector<std::string> characters_;  // by id, in UTF-8
  std::vector<int32_t> ids_;             // by code point, -1 where there is none
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeCharTokenizer(std::string_view text) {
  std::vector<bool> seen(0x110000);
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(i));
    if (c.code_point < 0) return InvalidUtf8(i);
    seen[c.code_point] = true;
    i += c.length;
  }
  std::vector<int32_t> code_points;
  for (int32_t c = 0; c < static_cast<int32_t>(seen.size()); ++c) {
    if (seen[c]) code_points.push_back(c);
  }
  if (code_points.empty()) {
    return absl::InvalidArgumentError(
        "char tokenizer: its vocabulary is the characters of the training text, and there is no "
        "text; give a text file as data");
  }
  return std::make_shared<CharTokenizer>(code_points);
}

}  // namespace pando
