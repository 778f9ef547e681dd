#include "train/bpe_description.h"

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "train/utf8.h"

namespace pando {
namespace {

using Json = nlohmann::json;

// No vocabulary in use comes near; keeps one absurd id from claiming all memory.
constexpr int64_t kMaxId = int64_t{1} << 24;

// What is wrong with a file. Thrown inside this file only, where a Status at every field would bury
// the format; Guarded turns it into one.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename... Parts>
void Check(bool ok, const Parts&... parts) {
  if (!ok) throw Malformed(absl::StrCat(parts...));
}

template <typename Function>
absl::StatusOr<BpeDescription> Guarded(const std::string& name, Function parse) {
  try {
    return parse();
  } catch (const Malformed& e) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", e.what()));
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not the JSON expected: ", e.what()));
  }
}

struct Alphabet {
  std::array<int32_t, 256> character;
  std::array<int16_t, 0x180> byte;  // by character, -1 if it stands for none
};

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet = [] {
    Alphabet a;
    a.byte.fill(-1);
    int32_t next = 0x100;
    for (int32_t b = 0; b < 256; ++b) {
      const bool printable =
          (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      a.character[b] = printable ? b : next++;
      a.byte[a.character[b]] = static_cast<int16_t>(b);
    }
    return a;
  }();
  return alphabet;
}

using TokenIds = absl::flat_hash_map<std::string, int32_t>;

int32_t CheckedId(const Json& id, const std::string& token) {
  Check(id.is_number_integer(), "the id of token \"", token, "\" is not a whole number");
  const auto value = id.get<int64_t>();
  Check(value >= 0 && value < kMaxId, "token \"", token, "\" has the id ", value,
        "; ids lie in 0..", kMaxId - 1);
  return static_cast<int32_t>(value);
}

void PlaceToken(int32_t id, const std::string& token, BpeDescription* d) {
  if (id >= static_cast<int64_t>(d->tokens.size())) d->tokens.resize(id + 1);
  std::string& place = d->tokens[id];
  Check(place.empty() || place == token, "tokens \"", place, "\" and \"", token,
        "\" have the same id ", id);
  place = token;
}

TokenIds ReadVocabulary(const Json& vocab, BpeDescription* d) {
  Check(vocab.is_object() && !vocab.empty(), "the vocabulary is not an object of token: id");
  TokenIds ids;
  for (const auto& [token, value] : vocab.items()) {
    const int32_t id = CheckedId(value, token);
    PlaceToken(id, token, d);
    ids.emplace(token, id);
  }
  for (int b = 0; b < 256; ++b) {
    std::string c;
    AppendUtf8(ByteAlphabet(static_cast<uint8_t>(b)), &c);
    Check(ids.contains(c), "the vocabulary lacks \"", c, "\", which stands for byte ", b,
          "; this is not a byte-level BPE");
  }
  return ids;
}

void AddMerge(const std::string& left, const std::string& right, const TokenIds& ids,
              BpeDescription* d) {
  const auto id = [&](const std::string& token) {
    const auto found = ids.find(token);
    Check(found != ids.end(), "merge ", d->merges.size() + 1, " (", left, " ", right, "): \"",
          token, "\" is not in the vocabulary");
    return found->second;
  };
  d->merges.push_back({id(left), id(right), id(left + right)});
}

// "left right"
void AddMergeLine(std::string_view line, const TokenIds& ids, BpeDescription* d) {
  const size_t space = line.find(' ');
  Check(space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos,
        "merge ", d->merges.size() + 1, " is not two tokens with a space between: \"",
        std::string(line), "\"");
  AddMerge(std::string(line.substr(0, space)), std::string(line.substr(space + 1)), ids, d);
}

void ReadMergesText(std::string_view text, const TokenIds& ids, BpeDescription* d) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.substr(0, 8) == "#version") continue;
    AddMergeLine(line, ids, d);
  }
}

// A field that would change the ids must have the value under which it does not.
void RequireUnset(const Json& object, const char* key, const char* where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return;
  const bool unset =
      *found == false || *found == 0 || *found == "" || (found->is_array() && found->empty());
  Check(unset, where, ": \"", key, "\" is ", found->dump().substr(0, 60),
        ", which is not supported");
}

void ReadModel(const Json& model, BpeDescription* d) {
  Check(model.value("type", "BPE") == "BPE", "the model is ", model.at("type").dump(), ", not BPE");
  for (const char* key :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
    RequireUnset(model, key, "model");
  }
  d->ignore_merges = model.value("ignore_merges", false);
  const TokenIds ids = ReadVocabulary(model.at("vocab"), d);
  for (const Json& merge : model.at("merges")) {
    if (merge.is_string()) {
      AddMergeLine(merge.get_ref<const std::string&>(), ids, d);
    } else {
      Check(merge.is_array() && merge.size() == 2, "merge ", d->merges.size() + 1,
            " is not a pair");
      AddMerge(merge[0].get<std::string>(), merge[1].get<std::string>(), ids, d);
    }
  }
}

void ReadAddedTokens(const Json& list, BpeDescription* d) {
  for (const Json& token : list) {
    const auto content = token.at("content").get<std::string>();
    const std::string where = absl::StrCat("added token \"", content, "\"");
    Check(!content.empty(), "an added token is empty");
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      RequireUnset(token, key, where.c_str());
    }
    const int32_t id = CheckedId(token.at("id"), content);
    PlaceToken(id, content, d);
    d->added.push_back({id, content, token.value("special", false)});
  }
  std::sort(d->added.begin(), d->added.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
}

void ReadByteLevel(const Json& part, bool after_split, BpeDescription* d) {
  Check(part.at("type") == "ByteLevel", "pre-tokenizer ", part.at("type").dump(),
        " is not supported: ByteLevel, or Split and ByteLevel, are");
  d->add_prefix_space = part.value("add_prefix_space", true);
  const bool splits = part.value("use_regex", true);
  Check(splits != after_split, "pre-tokenizer ByteLevel: use_regex must be ",
        after_split ? "false after a Split" : "true without a Split before it");
  Check(!(after_split && d->add_prefix_space),
        "pre-tokenizer ByteLevel: add_prefix_space after a Split is not supported");
}

void ReadPreTokenizer(const Json& part, BpeDescription* d) {
  Check(part.is_object(), "there is no pre-tokenizer, so this is not a byte-level BPE");
  if (part.at("type") != "Sequence") return ReadByteLevel(part, false, d);
  const Json& list = part.at("pretokenizers");
  Check(list.size() == 2 && list[0].at("type") == "Split",
        "the pre-tokenizer is a Sequence other than Split and ByteLevel: not supported");
  Check(list[0].at("behavior") == "Isolated" && !list[0].value("invert", false),
        "pre-tokenizer Split: only behavior Isolated, not inverted, is supported");
  const Json& pattern = list[0].at("pattern");
  Check(pattern.contains("Regex"), "pre-tokenizer Split: its pattern is not a Regex");
  d->pattern = pattern.at("Regex").get<std::string>();
  ReadByteLevel(list[1], true, d);
}

Json ByteLevelJson(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json PreTokenizerJson(const BpeDescription& d) {
  if (d.pattern == kGpt2Pattern) return ByteLevelJson(d.add_prefix_space, true);
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", d.pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, ByteLevelJson(false, false)}}};
}

}  // namespace

int32_t ByteAlphabet(uint8_t byte) { return TheAlphabet().character[byte]; }

std::string TokenBytes(std::string_view token) {
  const Alphabet& alphabet = TheAlphabet();
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const Utf8Char c = DecodeUtf8(token.substr(i));
    const bool known = c.code_point >= 0 &&
                       c.code_point < static_cast<int32_t>(alphabet.byte.size()) &&
                       alphabet.byte[c.code_point] >= 0;
    if (!known) return std::string(token);
    bytes.push_back(static_cast<char>(alphabet.byte[c.code_point]));
    i += c.length;
  }
  return bytes;
}

absl::StatusOr<BpeDescription> ParseVocabAndMerges(std::string_view vocab_json,
                                                   std::string_view merges_text,
                                                   const std::string& vocab_name,
                                                   const std::string& merges_name) {
  TokenIds ids;
  absl::StatusOr<BpeDescription> d = Guarded(vocab_name, [&] {
    BpeDescription read;
    ids = ReadVocabulary(Json::parse(vocab_json), &read);
    const auto end = ids.find("<|endoftext|>");
    if (end != ids.end()) read.added.push_back({end->second, end->first, true});
    return read;
  });
  if (!d.ok()) return d;
  return Guarded(merges_name, [&] {
    ReadMergesText(merges_text, ids, &*d);
    return *std::move(d);
  });
}

absl::StatusOr<BpeDescription> ParseTokenizerJson(std::string_view json, const std::string& name) {
  return Guarded(name, [&] {
    const Json top = Json::parse(json);
    BpeDescription d;
    RequireUnset(top, "normalizer", "the tokenizer");
    ReadPreTokenizer(top.value("pre_tokenizer", Json()), &d);
    ReadModel(top.at("model"), &d);
    ReadAddedTokens(top.value("added_tokens", Json::array()), &d);
    return d;
  });
}

std::string ToTokenizerJson(const BpeDescription& d) {
  Json vocab = Json::object();
  Json added = Json::array();
  Json merges = Json::array();
  for (const BpeDescription::AddedToken& t : d.added) {
    added.push_back({{"id", t.id},
                     {"content", t.content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", t.special}});
  }
  for (size_t id = 0; id < d.tokens.size(); ++id) {
    if (!d.tokens[id].empty()) vocab[d.tokens[id]] = id;
  }
  for (const BpeDescription::Merge& m : d.merges) {
    merges.push_back(absl::StrCat(d.tokens[m.left], " ", d.tokens[m.right]));
  }
  return Json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"normalizer", nullptr},
              {"added_tokens", added},
              {"pre_tokenizer", PreTokenizerJson(d)},
              {"post_processor", nullptr},
              {"decoder", ByteLevelJson(true, true)},
              {"model",
               {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", d.ignore_merges},
                {"vocab", vocab},
                {"merges", merges}}}}
      .dump();
}

}  // namespace pando
