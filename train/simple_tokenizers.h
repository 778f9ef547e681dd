#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "train/tokenizer.h"

namespace pando {

/// The tokenizer whose ids are the 256 bytes.
std::shared_ptr<const Tokenizer> MakeByteTokenizer();

/// The tokenizer whose ids number the distinct code points of `text` in ascending order. Fails on
/// empty text and on invalid UTF-8.
absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeCharTokenizer(std::string_view text);

}  // namespace pando
