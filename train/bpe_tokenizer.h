#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "train/bpe_description.h"
#include "train/tokenizer.h"

namespace pando {

/// GPT-2's byte-level BPE (Radford et al. 2019), with ids equal to Hugging Face's. `name` stands at
/// the start of error messages; it fails if the splitting expression is not valid.
absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeBpeTokenizer(BpeDescription description,
                                                                  const std::string& name);

}  // namespace pando
