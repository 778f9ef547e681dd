#include "train/utf8.h"

#include <cstring>

namespace pando {

Utf8Char DecodeUtf8(std::string_view text) {
  constexpr Utf8Char kInvalid = {-1, 1};
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const int length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < static_cast<size_t>(length)) return kInvalid;
  int32_t code_point = first & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return kInvalid;
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  constexpr int32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (code_point < kLeast[length] || code_point > 0x10FFFF || surrogate) return kInvalid;
  return {code_point, length};
}

void AppendUtf8(int32_t code_point, std::string* out) {
  const auto c = static_cast<uint32_t>(code_point);
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
    return;
  }
  const int length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  const uint32_t mark = 0xF00u >> length & 0xFFu;
  out->push_back(static_cast<char>(mark | c >> (6 * (length - 1))));
  for (int i = length - 2; i >= 0; --i) {
    out->push_back(static_cast<char>(0x80u | (c >> (6 * i) & 0x3Fu)));
  }
}

size_t FindInvalidUtf8(std::string_view text, size_t from) {
  size_t i = from;
  while (i < text.size()) {
    uint64_t eight = 0;  // most text is ASCII: eight bytes at a time
    if (i + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + i, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const Utf8Char c = DecodeUtf8(text.substr(i));
    if (c.code_point < 0) return i;
    i += c.length;
  }
  return std::string_view::npos;
}

}  // namespace pando
