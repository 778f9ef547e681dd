#include "train/tokenizer.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "train/bpe_description.h"
#include "train/bpe_tokenizer.h"
#include "train/hash.h"
#include "train/mapped_file.h"
#include "train/simple_tokenizers.h"

namespace pando {
namespace {

using TokenizerOr = absl::StatusOr<std::shared_ptr<const Tokenizer>>;

TokenizerOr LoadJsonFile(const std::string& path) {
  const auto file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  return TokenizerFromJson((*file)->bytes(), path);
}

TokenizerOr LoadFolder(const std::string& folder) {
  const std::string json = folder + "/tokenizer.json";
  const std::string vocab = folder + "/vocab.json";
  const std::string merges = folder + "/merges.txt";
  std::error_code ignored;
  if (std::filesystem::exists(json, ignored)) return LoadJsonFile(json);
  if (!std::filesystem::exists(vocab, ignored) || !std::filesystem::exists(merges, ignored)) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": holds neither tokenizer.json nor both vocab.json and merges.txt"));
  }
  const auto vocab_file = MappedFile::Open(vocab);
  if (!vocab_file.ok()) return vocab_file.status();
  const auto merges_file = MappedFile::Open(merges);
  if (!merges_file.ok()) return merges_file.status();
  auto description =
      ParseVocabAndMerges((*vocab_file)->bytes(), (*merges_file)->bytes(), vocab, merges);
  if (!description.ok()) return description.status();
  return MakeBpeTokenizer(*std::move(description), folder);
}

}  // namespace

std::string Tokenizer::Fingerprint() const {
  const std::string json = Serialize();
  Fnv1a64 hash;
  hash.Add(json.data(), json.size());
  return absl::StrFormat("%016x", hash.hash());
}

TokenizerOr LoadTokenizer(const std::string& spec, std::string_view training_text) {
  if (spec == "char") return MakeCharTokenizer(training_text);
  if (spec == "byte") return MakeByteTokenizer();
  const std::string path = spec.rfind("gpt2:", 0) == 0 ? spec.substr(5) : spec;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return LoadFolder(path);
  if (std::filesystem::exists(path, ignored)) return LoadJsonFile(path);
  return absl::NotFoundError(
      absl::StrCat("tokenizer \"", spec,
                   "\": is not \"char\" or \"byte\", and no file or folder has "
                   "this name"));
}

TokenizerOr TokenizerFromJson(std::string_view text, const std::string& name) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const bool own = json.is_object() && json.contains("pando_tokenizer");
  if (!own) {
    auto description = ParseTokenizerJson(text, name);
    if (!description.ok()) return description.status();
    return MakeBpeTokenizer(*std::move(description), name);
  }
  if (json["pando_tokenizer"] == "byte") return MakeByteTokenizer();
  const auto characters = json.find("characters");
  if (json["pando_tokenizer"] == "char" && characters != json.end() && characters->is_string()) {
    return MakeCharTokenizer(characters->get_ref<const std::string&>());
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": \"pando_tokenizer\" must be \"byte\", or \"char\" with \"characters\""));
}

}  // namespace pando
