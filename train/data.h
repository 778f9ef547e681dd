#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "train/token_dataset.h"
#include "train/tokenizer.h"

namespace pando {

/// Where training data lies and how it is read.
struct DataOptions {
  /// A file: text; or token ids, if its name ends in ".bin" (see OpenTokenFile). Or a folder, with,
  /// in this order of preference,
  ///   train.bin, val.bin                 token files as nanoGPT names them
  ///   *_train_*.bin, *_val_*.bin         llm.c's shards, joined in the order of their names
  ///   train.txt, val.txt                 text
  ///   *.txt                              texts, joined in the order of their names
  ///   names without a dot                the same
  std::string path = "";
  /// See LoadTokenizer. Empty: "char" for text, none for token files.
  std::string tokenizer = "";
  /// Where no validation file is there, the last part of the data, by characters of text or by
  /// tokens, is kept for it; in [0, 1).
  double validation_fraction = 0.1;
  /// Vocabulary of the model; 0: the tokenizer's. Token files without a tokenizer need it.
  int64_t vocab_size = 0;
  /// Tokens that one training sample sees; the training part must hold one more. 0: not checked.
  int64_t context = 0;
};

/// Data ready for training.
struct Data {
  TokenDataset train;
  TokenDataset validation;                     ///< may be empty
  std::shared_ptr<const Tokenizer> tokenizer;  ///< null for token files without one
  int64_t vocab_size = 0;
};

/// Opens the data. Text is tokenized into memory; texts that are joined are each followed by the
/// tokenizer's end of text, if it has one. `tokenizer`, if not null, is used instead of the one
/// that the options name (a checkpoint brings its own). Errors name the file, what is wrong and
/// what to do.
absl::StatusOr<Data> LoadData(const DataOptions& options,
                              std::shared_ptr<const Tokenizer> tokenizer = nullptr);

}  // namespace pando
