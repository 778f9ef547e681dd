#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace pando {

/// What Encode does with the text of a special token, such as "<|endoftext|>".
enum class SpecialTokens {
  kAsText,     ///< like any other text: what a user typed cannot forge an end of text
  kRecognise,  ///< becomes the token's own id, as Hugging Face does by default
};

/// Text to token ids and back. Immutable once made, so any number of threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// One more than the largest id.
  virtual int64_t vocab_size() const = 0;

  /// The ids of `text`. The byte-level kinds take any bytes; `char` fails on a character that its
  /// vocabulary lacks and on invalid UTF-8, naming it and where it is.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(
      std::string_view text, SpecialTokens special = SpecialTokens::kAsText) const = 0;

  /// The bytes that `ids` stand for; fails on an id outside the vocabulary. Part of a sequence may
  /// decode to part of a character. Decode(Encode(x)) == x (a prefix space apart, see
  /// BpeDescription).
  virtual absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const = 0;

  /// The id that separates documents, if the vocabulary has one.
  virtual std::optional<int32_t> end_of_text() const { return std::nullopt; }

  /// A JSON text that TokenizerFromJson turns into an equal tokenizer. Canonical: equal tokenizers
  /// give equal texts, whatever files they came from. The BPE kind writes Hugging Face's
  /// tokenizer.json.
  virtual std::string Serialize() const = 0;

  /// 64-bit FNV-1a of Serialize(), in 16 hexadecimal digits: what ranks and checkpoints compare.
  std::string Fingerprint() const;
};

/// Makes the tokenizer that `spec` names:
///   "char"      the sorted distinct characters of `training_text` (nanoGPT's character level)
///   "byte"      the 256 bytes
///   a folder    holding tokenizer.json, or vocab.json and merges.txt; may be written "gpt2:FOLDER"
///   a file      a tokenizer.json, Hugging Face's (byte-level BPE) or one that Serialize wrote
/// Errors name the file and what is wrong with it.
absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadTokenizer(const std::string& spec,
                                                               std::string_view training_text = {});

/// Makes a tokenizer from the text of Serialize or of a tokenizer.json. `name` (a path) stands at
/// the start of error messages.
absl::StatusOr<std::shared_ptr<const Tokenizer>> TokenizerFromJson(std::string_view json,
                                                                   const std::string& name);

}  // namespace pando
