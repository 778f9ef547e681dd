#include "tools/pando/saved_model.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "ckpt/checkpoint_folder.h"
#include "ckpt/checkpoint_reader.h"
#include "engine/error.h"
#include "models/hugging_face.h"
#include "train/model_checkpoint.h"

namespace pando {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Require(in.good(), path, ": can't be read");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The folder that holds weights: `path` itself, or the newest good checkpoint of a run.
std::string WeightsFolder(const std::string& path) {
  Require(std::filesystem::is_directory(path), path, ": no such folder");
  if (ValueOrThrow(ListSteps(path)).empty()) {
    if (std::filesystem::exists(path + "/" + kManifestFile)) {
      const absl::Status verified = Verify(path);
      Require(verified.ok(), std::string(verified.message()));
    }
    return path;
  }
  const FoundCheckpoint found = ValueOrThrow(FindLatest(path));
  Require(!found.path.empty(), path, ": none of its checkpoints is good: ",
          found.skipped.empty() ? "" : found.skipped[0].reason);
  return found.path;
}

}  // namespace

GptConfig ReadConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  return ValueOrThrow(GptConfigFromJson(ReadFile(path), path));
}

SavedModel OpenSavedModel(const std::string& path, const std::string& tokenizer, Device& device) {
  const std::string folder = WeightsFolder(path);
  SavedModel saved;
  saved.registry = std::make_unique<ParameterRegistry>();
  saved.model = std::make_unique<Gpt>(saved.registry->Root(), ReadConfig(folder));
  saved.parameters = std::make_unique<FlatParameters>(*saved.registry, DType::kF32, device,
                                                      /*training=*/false);
  TensorFileSet weights = ValueOrThrow(TensorFileSet::Open(folder));
  const absl::Status loaded = LoadWeights(weights, *saved.parameters);
  Require(loaded.ok(), folder, ": ", std::string(loaded.message()));
  saved.tokenizer = ValueOrThrow(LoadTokenizer(tokenizer.empty() ? folder : tokenizer));
  Require(saved.tokenizer->vocab_size() <= saved.model->vocab_size(), "a tokenizer of ",
          saved.tokenizer->vocab_size(), " tokens for a model of ", saved.model->vocab_size());
  return saved;
}

std::vector<int32_t> PromptIds(const Tokenizer& tokenizer, const std::string& prompt) {
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(prompt);
  Require(ids.ok(), "the prompt can't be tokenized: ", std::string(ids.status().message()));
  if (ids->empty()) ids->push_back(tokenizer.end_of_text().value_or(0));
  return *std::move(ids);
}

void GenerateText(LanguageModel& model, Device& device, const Tokenizer& tokenizer,
                  const std::vector<int32_t>& prompt, int64_t tokens,
                  const SamplingOptions& options, std::ostream& out) {
  std::vector<int32_t> generated;
  size_t shown = 0;
  Generate(model, device, prompt, tokens, options, [&](int32_t id) {
    if (id >= tokenizer.vocab_size()) return;  // a model may know more ids than its tokenizer
    generated.push_back(id);
    // Bytes of an unfinished character wait for the rest.
    const std::string text = ValueOrThrow(tokenizer.Decode(generated));
    size_t complete = text.size();
    for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
      const auto byte = static_cast<unsigned char>(text[text.size() - back]);
      const size_t needs = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
      if (needs > back) complete = text.size() - back;
      if (byte >= 0xC0 || byte < 0x80) break;
    }
    if (complete > shown) out << text.substr(shown, complete - shown) << std::flush;
    shown = std::max(shown, complete);
    if (complete == text.size()) {
      generated.clear();
      shown = 0;
    }
  });
}

}  // namespace pando
