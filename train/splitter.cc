#include "train/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "absl/strings/str_cat.h"
#include "train/utf8.h"

namespace pando {
namespace {

// The 25 characters of Unicode's White_Space, and all the others. PCRE2's \s has U+180E besides.
constexpr char kSpace[] =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr char kNotSpace[] =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

// Letters and numbers that Unicode 15, 15.1 and 16 added to those of Unicode 14. The ASCII ranges
// are there for speed alone: PCRE2 tests them by a bit map, before any property.
constexpr char kLetter[] =
    R"(A-Za-z\p{L}\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3})"
    R"(\x{10d4a}-\x{10d65}\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240})"
    R"(\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3})"
    R"(\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d40}-\x{16d6c}\x{18cff})"
    R"(\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d}\x{1e4d0}-\x{1e4eb})"
    R"(\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr char kNumber[] =
    R"(0-9\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59})"
    R"(\x{16130}-\x{16139}\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3})"
    R"(\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";

// Writes the classes of `pattern` out. A named class is replaced by its ranges inside brackets, and
// by a bracket expression elsewhere.
std::string WriteOutClasses(std::string_view pattern) {
  struct Class {
    std::string_view name;
    const char* ranges;
  };
  constexpr Class kClasses[] = {
      {R"(\s)", kSpace}, {R"(\S)", kNotSpace}, {R"(\p{L})", kLetter}, {R"(\p{N})", kNumber}};
  std::string out;
  bool in_brackets = false;
  for (size_t i = 0; i < pattern.size();) {
    size_t length = pattern[i] == '\\' && i + 1 < pattern.size() ? 2 : 1;
    std::string text(pattern.substr(i, length));
    for (const Class& c : kClasses) {
      if (pattern.substr(i, c.name.size()) != c.name) continue;
      length = c.name.size();
      text = in_brackets ? c.ranges : absl::StrCat("[", c.ranges, "]");
    }
    if (pattern[i] == '[') in_brackets = true;
    if (pattern[i] == ']') in_brackets = false;
    out += text;
    i += length;
  }
  return out;
}

std::string ErrorText(int code) {
  char text[256];
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

PCRE2_SPTR AsUnits(const char* text) { return reinterpret_cast<PCRE2_SPTR>(text); }

}  // namespace

struct Splitter::Code {
  explicit Code(pcre2_code* c) : code(c) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code;
};

struct Splitter::Cursor::MatchData {
  explicit MatchData(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)) {}
  ~MatchData() { pcre2_match_data_free(data); }
  MatchData(const MatchData&) = delete;
  MatchData& operator=(const MatchData&) = delete;
  pcre2_match_data* data;
};

absl::StatusOr<Splitter> Splitter::Create(const std::string& pattern) {
  const std::string exact = WriteOutClasses(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(AsUnits(exact.data()), exact.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &offset, nullptr);
  if (code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the splitting expression \"", pattern,
                                                   "\" is not valid: ", ErrorText(error), " at ",
                                                   exact.substr(0, offset)));
  }
  // Without a compiler for this machine PCRE2 interprets: slower, the same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Splitter(pattern, std::make_unique<Code>(code));
}

Splitter::Splitter(std::string pattern, std::unique_ptr<Code> code)
    : pattern_(std::move(pattern)), code_(std::move(code)) {}
Splitter::~Splitter() = default;
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;

Splitter::Cursor::Cursor(const Splitter& splitter, std::string_view text)
    : splitter_(splitter),
      text_(text),
      subject_(text),
      match_(std::make_unique<MatchData>(splitter.code_->code)) {
  size_t bad = FindInvalidUtf8(text);
  if (bad == std::string_view::npos) return;
  // A one-byte stand-in keeps every offset what it was.
  cleaned_ = text;
  for (; bad != std::string::npos; bad = FindInvalidUtf8(cleaned_, bad)) cleaned_[bad] = '\x01';
  subject_ = cleaned_;
}

Splitter::Cursor::~Cursor() = default;

bool Splitter::Cursor::Match() {
  const int found =
      pcre2_match(splitter_.code_->code, AsUnits(subject_.data()), subject_.size(), position_,
                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match_->data, nullptr);
  if (found == PCRE2_ERROR_NOMATCH) {
    match_begin_ = match_end_ = subject_.size();
    return true;
  }
  if (found < 0) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat("splitting text at byte ", position_, ": ", ErrorText(found)));
    return false;
  }
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match_->data);
  match_begin_ = span[0];
  match_end_ = span[1];
  return true;
}

bool Splitter::Cursor::Next(std::string_view* piece) {
  if (position_ == text_.size()) return false;
  if (position_ >= match_end_ && !Match()) return false;
  const size_t end = position_ < match_begin_ ? match_begin_ : match_end_;
  *piece = text_.substr(position_, end - position_);
  position_ = end;
  return true;
}

}  // namespace pando
