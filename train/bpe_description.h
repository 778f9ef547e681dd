#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "train/splitter.h"

namespace pando {

/// A byte-level BPE tokenizer as files describe it. Token texts are in GPT-2's byte alphabet: every
/// byte stands as one printable character (see ByteAlphabet).
struct BpeDescription {
  struct Merge {
    int32_t left, right, result;  ///< ids
  };
  struct AddedToken {
    int32_t id;
    std::string content;  ///< literal text, not in the byte alphabet
    bool special;         ///< recognised only on request; the others always are
  };

  std::vector<std::string> tokens;  ///< by id; "" where no token has the id
  std::vector<Merge> merges;        ///< by rank, first come first merged
  std::vector<AddedToken> added;    ///< by id
  std::string pattern = kGpt2Pattern;
  /// Text gets a space in front if it has none, so that its first word is as any other. Decode
  /// gives that space back.
  bool add_prefix_space = false;
  /// A piece that is a token as it stands is not built up by merges (Llama 3).
  bool ignore_merges = false;
};

/// The character that stands for `byte` in vocabulary files: itself if printable in Latin-1, else
/// the next of U+0100, U+0101, ...
int32_t ByteAlphabet(uint8_t byte);

/// `token` with each character of the byte alphabet turned back into its byte. A token holding any
/// other character is literal text and comes back as it is, as in Hugging Face's decoder.
std::string TokenBytes(std::string_view token);

/// Reads GPT-2's pair of files: vocab.json (token to id) and merges.txt. A token "<|endoftext|>" is
/// special. Names are for messages.
absl::StatusOr<BpeDescription> ParseVocabAndMerges(std::string_view vocab_json,
                                                   std::string_view merges_text,
                                                   const std::string& vocab_name,
                                                   const std::string& merges_name);

/// Reads Hugging Face's tokenizer.json, if it is a byte-level BPE: what Pando cannot reproduce
/// exactly (normalizers, other pre-tokenizers, tokens that strip spaces) is refused by name.
absl::StatusOr<BpeDescription> ParseTokenizerJson(std::string_view json, const std::string& name);

/// The tokenizer.json of a description; ParseTokenizerJson's inverse. Keys are sorted.
std::string ToTokenizerJson(const BpeDescription& description);

}  // namespace pando
