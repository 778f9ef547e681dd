#include "tools/pando/run_data.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "engine/error.h"
#include "tools/pando/saved_model.h"
#include "train/data_files.h"

namespace pando {
namespace {

constexpr char kDefaultText[] = "/usr/share/games/fortunes";

/// The model that --init-from names.
void ReadInitialConfig(TrainOptions& o) {
  Require(std::filesystem::is_directory(o.init_from), "--init-from ", o.init_from,
          ": there is no such folder");
  const double dropout = o.gpt.dropout;
  o.gpt = ReadConfig(o.init_from);
  o.gpt.dropout = dropout;
  Require(o.trainer.length <= o.gpt.context, "--context ", o.trainer.length, ": the model of ",
          o.init_from, " has a context of ", o.gpt.context);
}

Data OpenData(const TrainOptions& o) {
  DataOptions options;
  options.path = o.data.empty() ? kDefaultText : o.data;
  Require(!o.data.empty() || std::filesystem::exists(kDefaultText),
          "no --data given, and the text of the Debian package fortunes is not installed: give a "
          "text file, or install fortunes");
  options.tokenizer = o.tokenizer;
  options.context = o.SampleLength();
  const bool tokens = ValueOrThrow(FindDataFiles(options.path)).tokens;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (o.tokenizer.empty() && !o.init_from.empty()) {
    auto found = LoadTokenizer(o.init_from);
    // Token files can do without.
    if (!tokens || !absl::IsNotFound(found.status())) tokenizer = ValueOrThrow(std::move(found));
  }
  // GPT-2's, or that of --init-from.
  if (tokens && o.tokenizer.empty()) options.vocab_size = o.gpt.vocab_size;
  return ValueOrThrow(LoadData(options, std::move(tokenizer)));
}

}  // namespace

Data OpenRunData(TrainOptions& options) {
  if (!options.init_from.empty()) ReadInitialConfig(options);
  Data data = OpenData(options);
  if (options.init_from.empty()) options.gpt.vocab_size = data.vocab_size;
  Require(data.vocab_size <= options.gpt.vocab_size, "the data has ", data.vocab_size,
          " different tokens, the model of ", options.init_from, " ", options.gpt.vocab_size);
  return data;
}

}  // namespace pando
