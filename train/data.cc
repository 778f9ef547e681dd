#include "train/data.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "train/data_files.h"
#include "train/mapped_file.h"

namespace pando {
namespace {

// A text, and the file it comes from, for messages.
struct Text {
  std::string_view bytes;
  std::string name;
  bool ends_document;  // an end of text follows
};
using Texts = std::vector<Text>;

struct OpenTexts {
  std::vector<std::shared_ptr<const MappedFile>> files;  // keep the texts alive
  Texts train, validation;
};

// UTF-8 continues a character with bytes 10xxxxxx; all others begin one.
bool BeginsCharacter(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }

int64_t CountCharacters(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += BeginsCharacter(c);
  return count;
}

// The offset of character number `index`, or the end.
size_t OffsetOfCharacter(std::string_view text, int64_t index) {
  size_t i = 0;
  for (; i < text.size(); ++i) {
    if (BeginsCharacter(text[i]) && index-- == 0) break;
  }
  return i;
}

int64_t TrainingPart(int64_t all, double validation_fraction) {
  return static_cast<int64_t>(static_cast<double>(all) * (1.0 - validation_fraction));
}

// Moves the last part of texts->train, by characters as in nanoGPT, to texts->validation.
void SplitTexts(double validation_fraction, OpenTexts* texts) {
  int64_t all = 0;
  for (const Text& t : texts->train) all += CountCharacters(t.bytes);
  int64_t left = TrainingPart(all, validation_fraction);
  Texts train;
  for (const Text& t : texts->train) {
    const size_t cut = OffsetOfCharacter(t.bytes, left);
    left -= CountCharacters(t.bytes.substr(0, cut));
    if (cut > 0) {
      train.push_back({t.bytes.substr(0, cut), t.name, t.ends_document && cut == t.bytes.size()});
    }
    if (cut < t.bytes.size()) {
      texts->validation.push_back({t.bytes.substr(cut), t.name, t.ends_document});
    }
  }
  texts->train = std::move(train);
}

absl::StatusOr<Texts> OpenAll(const std::vector<std::string>& paths, OpenTexts* texts) {
  Texts opened;
  for (const std::string& path : paths) {
    auto file = MappedFile::Open(path);
    if (!file.ok()) return file.status();
    if (!(*file)->bytes().empty()) opened.push_back({(*file)->bytes(), path, paths.size() > 1});
    texts->files.push_back(*std::move(file));
  }
  if (opened.empty() && !paths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("data ", paths[0], ": is empty"));
  }
  return opened;
}

// `Id` is as narrow as the vocabulary allows: text is kept in memory as ids.
template <typename Id>
absl::StatusOr<TokenSegment> EncodeAs(const Texts& texts, const Tokenizer& tokenizer) {
  auto all = std::make_shared<std::vector<Id>>();
  for (const Text& text : texts) {
    const auto ids = tokenizer.Encode(text.bytes);
    if (!ids.ok()) {
      return absl::Status(ids.status().code(),
                          absl::StrCat(text.name, ": ", ids.status().message()));
    }
    all->insert(all->end(), ids->begin(), ids->end());
    if (text.ends_document && tokenizer.end_of_text()) all->push_back(*tokenizer.end_of_text());
  }
  return TokenSegment{.owner = all,
                      .data = all->data(),
                      .width = sizeof(Id),
                      .count = static_cast<int64_t>(all->size()),
                      .name = texts[0].name};
}

absl::StatusOr<TokenDataset> Encode(const Texts& texts, const Tokenizer& tokenizer,
                                    int64_t vocab_size) {
  if (texts.empty()) return TokenDataset();
  auto segment = tokenizer.vocab_size() <= 0x10000 ? EncodeAs<uint16_t>(texts, tokenizer)
                                                   : EncodeAs<uint32_t>(texts, tokenizer);
  if (!segment.ok()) return segment.status();
  return TokenDataset({*std::move(segment)}, vocab_size);
}

// The characters of all texts, or nothing where the kind of tokenizer does not need them.
std::string TextForVocabulary(const std::string& spec, const OpenTexts& texts) {
  std::string all;
  if (spec != "char") return all;
  for (const Texts* part : {&texts.train, &texts.validation}) {
    for (const Text& t : *part) all += t.bytes;
  }
  return all;
}

absl::Status ChooseVocabulary(const DataOptions& options, Data* data) {
  const int64_t known = data->tokenizer == nullptr ? 0 : data->tokenizer->vocab_size();
  data->vocab_size = options.vocab_size > 0 ? options.vocab_size : known;
  if (data->vocab_size == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("data ", options.path,
                     ": token files need a tokenizer or the size of their vocabulary; "
                     "give --tokenizer or --vocab-size (50257 for GPT-2)"));
  }
  if (data->vocab_size < known) {
    return absl::InvalidArgumentError(
        absl::StrCat("the vocabulary of ", data->vocab_size, " is smaller than the tokenizer's ",
                     known, "; leave --vocab-size out, or make it at least that"));
  }
  return absl::OkStatus();
}

absl::Status LoadText(const DataOptions& options, const DataFiles& files, Data* data) {
  OpenTexts texts;
  for (auto [paths, part] :
       {std::pair(&files.train, &texts.train), std::pair(&files.validation, &texts.validation)}) {
    auto opened = OpenAll(*paths, &texts);
    if (!opened.ok()) return opened.status();
    *part = *std::move(opened);
  }
  if (files.validation.empty()) SplitTexts(options.validation_fraction, &texts);
  if (data->tokenizer == nullptr) {
    const std::string spec = options.tokenizer.empty() ? "char" : options.tokenizer;
    auto made = LoadTokenizer(spec, TextForVocabulary(spec, texts));
    if (!made.ok() && spec == "char") {  // the text itself is at fault
      return absl::Status(made.status().code(),
                          absl::StrCat("data ", options.path, ": ", made.status().message()));
    }
    if (!made.ok()) return made.status();
    data->tokenizer = *std::move(made);
  }
  absl::Status status = ChooseVocabulary(options, data);
  for (auto [part, dataset] :
       {std::pair(&texts.train, &data->train), std::pair(&texts.validation, &data->validation)}) {
    if (!status.ok()) return status;
    auto encoded = Encode(*part, *data->tokenizer, data->vocab_size);
    status = encoded.status();
    if (status.ok()) *dataset = *std::move(encoded);
  }
  return status;
}

absl::StatusOr<TokenDataset> OpenTokenFiles(const std::vector<std::string>& paths,
                                            int64_t vocab_size) {
  std::vector<TokenSegment> segments;
  for (const std::string& path : paths) {
    auto segment = OpenTokenFile(path);
    if (!segment.ok()) return segment.status();
    segments.push_back(*std::move(segment));
  }
  TokenDataset dataset(std::move(segments), vocab_size);
  absl::Status status = dataset.CheckTokens();
  if (!status.ok()) return status;
  return dataset;
}

absl::Status LoadTokenFiles(const DataOptions& options, const DataFiles& files, Data* data) {
  if (data->tokenizer == nullptr && !options.tokenizer.empty()) {
    auto made = LoadTokenizer(options.tokenizer);
    if (!made.ok()) return made.status();
    data->tokenizer = *std::move(made);
  }
  absl::Status status = ChooseVocabulary(options, data);
  if (!status.ok()) return status;
  auto train = OpenTokenFiles(files.train, data->vocab_size);
  if (!train.ok()) return train.status();
  if (files.validation.empty()) {
    const int64_t cut = TrainingPart(train->size(), options.validation_fraction);
    data->train = train->Slice(0, cut);
    data->validation = train->Slice(cut, train->size());
    return absl::OkStatus();
  }
  auto validation = OpenTokenFiles(files.validation, data->vocab_size);
  if (!validation.ok()) return validation.status();
  data->train = *std::move(train);
  data->validation = *std::move(validation);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Data> LoadData(const DataOptions& options,
                              std::shared_ptr<const Tokenizer> tokenizer) {
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("the part kept for validation, ",
                                                   options.validation_fraction,
                                                   ", must be at least 0 and less than 1"));
  }
  const auto files = FindDataFiles(options.path);
  if (!files.ok()) return files.status();
  Data data;
  data.tokenizer = std::move(tokenizer);
  const absl::Status status =
      files->tokens ? LoadTokenFiles(options, *files, &data) : LoadText(options, *files, &data);
  if (!status.ok()) return status;
  if (options.context > 0 && data.train.size() <= options.context) {
    return absl::InvalidArgumentError(
        absl::StrCat("data ", options.path, ": a context of ", options.context, " needs at least ",
                     options.context + 1, " training tokens, and there are ", data.train.size(),
                     "; choose a shorter context or more data"));
  }
  return data;
}

}  // namespace pando
