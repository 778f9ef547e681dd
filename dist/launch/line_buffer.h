#pragma once

#include <deque>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace pando {

/// Cuts what a process writes into lines, and remembers the last few.
class LineBuffer {
 public:
  using OnLine = std::function<void(const std::string&)>;
  explicit LineBuffer(OnLine on_line) : on_line_(std::move(on_line)) {}

  /// A line without an end is cut where it gets too long to wait for.
  void Append(absl::string_view text);
  /// What is left is a line too.
  void Finish();
  const std::deque<std::string>& last_lines() const { return last_; }

 private:
  static constexpr size_t kMostBytes = size_t{1} << 20;
  static constexpr size_t kRemembered = 20, kRememberedBytes = 4096;

  void Emit(std::string line);

  OnLine on_line_;
  std::string partial_;
  std::deque<std::string> last_;
};

}  // namespace pando
