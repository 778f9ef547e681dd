#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "train/simple_tokenizers.h"

namespace pando {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 256; }

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, SpecialTokens) const override {
    std::vector<int32_t> ids(text.size());
    for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<uint8_t>(text[i]);
    return ids;
  }

  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const int32_t id : ids) {
      if (id < 0 || id > 255) {
        return absl::InvalidArgumentError(
            absl::StrCat("byte tokenizer: id ", id, " is outside 0..255"));
      }
      text.push_back(static_cast<char>(id));
    }
    return text;
  }

  std::string Serialize() const override { return R"({"pando_tokenizer":"byte"})"; }
};

}  // namespace

std::shared_ptr<const Tokenizer> MakeByteTokenizer() { return std::make_shared<ByteTokenizer>(); }

}  // namespace pando
