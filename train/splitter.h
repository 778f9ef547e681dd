#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando {

/// The expression by which GPT-2 cuts text into pieces that are then tokenized one by one (Radford
/// et al., "Language models are unsupervised multitask learners", 2019; its encoder).
inline constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Cuts text into pieces by a regular expression, as Hugging Face's pre-tokenizer of behavior
/// "Isolated" does: each match is a piece, and so is the text between two matches. Immutable.
///
/// Hugging Face's engine (Oniguruma) follows Unicode 16. PCRE2 follows the version it was built
/// with, 14 in Debian 12, and has a white-space class of its own; so \s, \S, \p{L} and \p{N} are
/// written out as Unicode 16 defines them before the expression is compiled. With a PCRE2 of a
/// later Unicode, characters younger than 16 may count as letters here and not there.
class Splitter {
 public:
  /// Compiles `pattern`; the error says what is wrong with it and where.
  static absl::StatusOr<Splitter> Create(const std::string& pattern);

  ~Splitter();
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;

  /// Walks over the pieces of one text. Bytes that are not UTF-8 are cut as if each were a control
  /// character: no letter, no digit, no white space.
  class Cursor {
   public:
    Cursor(const Splitter& splitter, std::string_view text);
    ~Cursor();
    Cursor(const Cursor&) = delete;
    Cursor& operator=(const Cursor&) = delete;

    /// Sets `piece`, a part of the text given, to the next piece; false at the end and on an error.
    /// The pieces follow each other without gaps.
    bool Next(std::string_view* piece);

    /// Not OK when the engine gave up (its limits are far above what GPT-2's expression needs).
    const absl::Status& status() const { return status_; }

   private:
    bool Match();

    const Splitter& splitter_;
    std::string_view text_;
    std::string cleaned_;  // a copy without invalid bytes, when there are any
    std::string_view subject_;
    struct MatchData;
    std::unique_ptr<MatchData> match_;
    size_t position_ = 0;     // end of the last piece
    size_t match_begin_ = 0;  // the match found but not yet given out
    size_t match_end_ = 0;
    absl::Status status_;
  };

  const std::string& pattern() const { return pattern_; }

 private:
  struct Code;
  Splitter(std::string pattern, std::unique_ptr<Code> code);

  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace pando
