#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pando {

/// One step through text: a code point and the bytes it takes.
struct Utf8Char {
  int32_t code_point;  ///< -1 when the byte begins no valid sequence
  int32_t length;      ///< bytes consumed: 1 to 4; 1 when invalid
};

/// Decodes the character at the start of `text`, which must not be empty. Overlong forms,
/// surrogates and code points past U+10FFFF are invalid (Unicode 16, table 3-7).
Utf8Char DecodeUtf8(std::string_view text);

/// Appends the UTF-8 form of `code_point` (valid, not a surrogate).
void AppendUtf8(int32_t code_point, std::string* out);

/// Offset of the first byte, from `from` on, that begins no valid sequence; npos if there is none.
size_t FindInvalidUtf8(std::string_view text, size_t from = 0);

}  // namespace pando
