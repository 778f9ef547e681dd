#include "train/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/random.h"
#include "tests/train/testing.h"

namespace pando {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

TokenizerPtr Load(const std::string& spec, std::string_view text = {}) {
  auto tokenizer = LoadTokenizer(spec, text);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

Ids Encode(const Tokenizer& tokenizer, std::string_view text,
           SpecialTokens special = SpecialTokens::kAsText) {
  auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *std::move(ids) : Ids{};
}

std::string Decode(const Tokenizer& tokenizer, const Ids& ids) {
  auto text = tokenizer.Decode(ids);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *std::move(text) : "";
}

std::string RandomBytes(size_t count, uint64_t seed) {
  std::string bytes(count, 0);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<char>(RandomBits({.seed = seed, .site = 0, .step = 0}, 0, i));
  }
  return bytes;
}

void ExpectRoundTrip(const Tokenizer& tokenizer, const std::string& text) {
  EXPECT_EQ(Decode(tokenizer, Encode(tokenizer, text)), text);
}

// Serialize gives a tokenizer of equal ids and an equal fingerprint.
void ExpectSurvivesSerialization(const Tokenizer& tokenizer, const std::string& text) {
  const auto again = TokenizerFromJson(tokenizer.Serialize(), "copy");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->vocab_size(), tokenizer.vocab_size());
  EXPECT_EQ((*again)->Fingerprint(), tokenizer.Fingerprint());
  EXPECT_EQ((*again)->end_of_text(), tokenizer.end_of_text());
  for (const auto special : {SpecialTokens::kAsText, SpecialTokens::kRecognise}) {
    EXPECT_EQ(Encode(**again, text, special), Encode(tokenizer, text, special));
  }
}

void ExpectError(const absl::Status& status, const std::vector<std::string>& parts) {
  ASSERT_FALSE(status.ok());
  for (const std::string& part : parts) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
  }
}

TEST(ByteTokenizer, IdsAreTheBytes) {
  const TokenizerPtr t = Load("byte");
  EXPECT_EQ(t->vocab_size(), 256);
  EXPECT_EQ(Encode(*t, std::string_view("A\0\xFF", 3)), (Ids{65, 0, 255}));
  ExpectRoundTrip(*t, RandomBytes(10000, 1));
  ExpectSurvivesSerialization(*t, "any");
  ExpectError(t->Decode(Ids{256}).status(), {"256"});
}

TEST(CharTokenizer, IdsNumberTheSortedCharacters) {
  const TokenizerPtr t = Load("char", "b\u00e9a\na\U0001F600");
  EXPECT_EQ(t->vocab_size(), 5);  // \n a b e-acute emoji
  EXPECT_EQ(Encode(*t, "ab\U0001F600\u00e9\n"), (Ids{1, 2, 4, 3, 0}));
  ExpectRoundTrip(*t, "aab\U0001F600\n");
  ExpectSurvivesSerialization(*t, "baba");
  EXPECT_NE(t->Fingerprint(), Load("char", "abc")->Fingerprint());
}

TEST(CharTokenizer, Errors) {
  const TokenizerPtr t = Load("char", "abc");
  ExpectError(t->Encode("ab\u00e9").status(), {"U+00E9", "byte 2"});
  ExpectError(t->Encode("abd").status(), {"U+0064", "byte 2"});
  ExpectError(t->Encode("a\xFF").status(), {"UTF-8", "byte 1"});
  ExpectError(t->Decode(Ids{3}).status(), {"id 3"});
  ExpectError(t->Decode(Ids{-1}).status(), {"id -1"});
  ExpectError(LoadTokenizer("char").status(), {"no text"});
  ExpectError(LoadTokenizer("char", "a\xC3").status(), {"UTF-8", "byte 1"});
}

// The variants of make_tokenizer_golden.py: tokenizer.json with some fields replaced.
TokenizerPtr Variant(const Json& patch) {
  Json json = Json::parse(ReadAll(TestData("tokenizer.json")));
  json["pre_tokenizer"] = patch["pre_tokenizer"];
  json["added_tokens"] = patch["added_tokens"];
  json["model"]["ignore_merges"] = patch["ignore_merges"];
  json["model"]["vocab"].update(patch["vocab"]);
  auto tokenizer = TokenizerFromJson(json.dump(), "variant");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *tokenizer;
}

TEST(BpeTokenizer, IdsAreThoseOfHuggingFace) {
  const Json golden = Json::parse(ReadAll(TestData("golden.json")));
  for (const auto& [name, variant] : golden.items()) {
    SCOPED_TRACE(name);
    const TokenizerPtr t = Variant(variant["patch"]);
    for (const auto& [text_name, ids] : variant["special"].items()) {
      const std::string text = ReadAll(TestData(text_name + ".txt"));
      EXPECT_EQ(Encode(*t, text, SpecialTokens::kRecognise), ids.get<Ids>()) << text_name;
      ExpectSurvivesSerialization(*t, text);
      if (name != "prefix") ExpectRoundTrip(*t, text);
    }
    for (const auto& [text_name, ids] : variant["as_text"].items()) {
      EXPECT_EQ(Encode(*t, ReadAll(TestData(text_name + ".txt"))), ids.get<Ids>()) << text_name;
    }
  }
}

TEST(BpeTokenizer, BothFormsOfFilesAreOneTokenizer) {
  const TokenizerPtr pair = Load("gpt2:" + TestData("bpe"));
  const TokenizerPtr json = Load(TestData("tokenizer.json"));
  EXPECT_EQ(pair->vocab_size(), 1258);
  EXPECT_EQ(pair->end_of_text(), 1257);
  EXPECT_EQ(pair->Fingerprint(), json->Fingerprint());
  EXPECT_EQ(pair->Fingerprint(), Load(TestData("bpe"))->Fingerprint());
  EXPECT_EQ(pair->Fingerprint().size(), 16u);
}

TEST(BpeTokenizer, AnyBytesRoundTrip) {
  const TokenizerPtr t = Load(TestData("bpe"));
  for (uint64_t seed = 0; seed < 50; ++seed) ExpectRoundTrip(*t, RandomBytes(seed * 97, seed));
  const std::string english = ReadAll(TestData("english.txt"));
  std::string damaged = english;
  for (size_t i = 0; i < damaged.size(); i += 13) damaged[i] = static_cast<char>(0x80 + i % 128);
  ExpectRoundTrip(*t, damaged);
}

// Merges are found by rank through a heap: a naive search of the lowest pair gives the same ids.
TEST(BpeTokenizer, LongWordsAreMergedByRank) {
  const TokenizerPtr t = Load(TestData("bpe"));
  const Json json = Json::parse(ReadAll(TestData("tokenizer.json")));
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (const Json& m : json["model"]["merges"]) ranks.emplace(std::pair(m[0], m[1]), ranks.size());
  std::string word;
  for (uint64_t i = 0; i < 2000; ++i) {
    word += "etaoinshrdlu"[RandomBits({.seed = 5, .site = 0, .step = 0}, 0, i) % 12];
  }
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  for (;;) {
    size_t best = ranks.size(), at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && found->second < best) best = found->second, at = i;
    }
    if (best == ranks.size()) break;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<int64_t>(at) + 1);
  }
  Ids want;
  for (const std::string& s : symbols) want.push_back(json["model"]["vocab"][s]);
  EXPECT_EQ(Encode(*t, word), want);
}

// Quadratic work would take minutes here.
TEST(BpeTokenizer, WordOfAMillionLetters) {
  const TokenizerPtr t = Load(TestData("bpe"));
  std::string word = RandomBytes(1 << 20, 3);
  for (char& c : word) c = static_cast<char>('a' + static_cast<uint8_t>(c) % 26);
  ExpectRoundTrip(*t, word);
}

TEST(BpeTokenizer, SpecialTokensOnRequest) {
  const TokenizerPtr t = Load(TestData("bpe"));
  const std::string text = "a<|endoftext|>b";
  EXPECT_EQ(Encode(*t, text, SpecialTokens::kRecognise).size(), 3u);
  EXPECT_EQ(Encode(*t, text, SpecialTokens::kRecognise)[1], 1257);
  const Ids plain = Encode(*t, text);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 1257), 0);
  EXPECT_EQ(Decode(*t, {1257}), "<|endoftext|>");
}

TEST(BpeTokenizer, DecodeErrors) {
  const TokenizerPtr t = Load(TestData("bpe"));
  ExpectError(t->Decode(Ids{1258}).status(), {"1258"});
  ExpectError(t->Decode(Ids{-1}).status(), {"-1"});
}

TEST(BpeTokenizer, MalformedFilesAreNamed) {
  const TemporaryFolder folder;
  const std::string vocab = ReadAll(TestData("bpe/vocab.json"));
  const auto pair = [&](const std::string& vocab_json, const std::string& merges) {
    folder.Write("vocab.json", vocab_json);
    folder.Write("merges.txt", merges);
    return LoadTokenizer(folder.path()).status();
  };
  ExpectError(LoadTokenizer(folder.path()).status(), {"neither tokenizer.json nor"});
  ExpectError(LoadTokenizer("/no/such").status(), {"/no/such"});
  ExpectError(pair("{\"a\": 0", ""), {"vocab.json", "JSON"});
  ExpectError(pair("[1]", ""), {"vocab.json", "token: id"});
  ExpectError(pair("{\"a\": 0, \"b\": 0}", ""), {"vocab.json", "same id 0"});
  ExpectError(pair("{\"a\": -1}", ""), {"vocab.json", "\"a\"", "-1"});
  ExpectError(pair("{\"a\": 99999999999}", ""), {"vocab.json", "99999999999"});
  ExpectError(pair("{\"a\": 0.5}", ""), {"vocab.json", "whole number"});
  ExpectError(pair("{\"a\": 0}", ""), {"vocab.json", "byte-level"});
  ExpectError(pair(vocab, "#version: 0.2\nt h\nnonsense\n"), {"merges.txt", "merge 2", "nonsense"});
  ExpectError(pair(vocab, "t h\nqq zz\n"), {"merges.txt", "\"qq\"", "vocabulary"});
  ExpectError(pair(vocab, "a b c\n"), {"merges.txt", "merge 1"});
}

TEST(BpeTokenizer, UnsupportedTokenizersAreRefused) {
  const Json good = Json::parse(ReadAll(TestData("tokenizer.json")));
  const auto with = [&](const char* pointer, const Json& value) {
    Json json = good;
    json[Json::json_pointer(pointer)] = value;
    return TokenizerFromJson(json.dump(), "t.json").status();
  };
  EXPECT_TRUE(with("/model/dropout", 0.0).ok());
  ExpectError(TokenizerFromJson("{", "t.json").status(), {"t.json", "JSON"});
  ExpectError(TokenizerFromJson("{}", "t.json").status(), {"t.json", "pre-tokenizer"});
  ExpectError(TokenizerFromJson("{\"pando_tokenizer\":\"x\"}", "t.json").status(), {"t.json"});
  ExpectError(with("/model/type", "Unigram"), {"t.json", "Unigram"});
  ExpectError(with("/normalizer", {{"type", "NFC"}}), {"normalizer", "NFC"});
  ExpectError(with("/pre_tokenizer/type", "Whitespace"), {"Whitespace"});
  ExpectError(with("/pre_tokenizer/use_regex", false), {"use_regex"});
  ExpectError(with("/model/end_of_word_suffix", "</w>"), {"end_of_word_suffix", "</w>"});
  ExpectError(with("/model/dropout", 0.1), {"dropout"});
  ExpectError(with("/model/byte_fallback", true), {"byte_fallback"});
  ExpectError(with("/added_tokens/0/lstrip", true), {"<|endoftext|>", "lstrip"});
  ExpectError(with("/added_tokens/0/id", 5), {"same id 5"});
  ExpectError(with("/model/merges", {{"t", "h", "e"}}), {"merge 1"});
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "a(b"}}}, {"behavior", "Isolated"}};
  const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  ExpectError(with("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, level}}}),
              {"t.json", "a(b"});
}

}  // namespace
}  // namespace pando
