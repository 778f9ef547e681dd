#include "dist/launch/line_buffer.h"

#include <utility>

namespace pando {

void LineBuffer::Append(absl::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const bool whole = end != absl::string_view::npos;
    const size_t taken = std::min(whole ? end : text.size(), kMostBytes - partial_.size());
    partial_.append(text.data(), taken);
    text.remove_prefix(taken);
    const bool ended = whole && !text.empty() && text.front() == '\n';
    if (ended) text.remove_prefix(1);
    if (ended || partial_.size() >= kMostBytes) Emit(std::exchange(partial_, ""));
  }
}

void LineBuffer::Finish() {
  if (!partial_.empty()) Emit(std::exchange(partial_, ""));
}

void LineBuffer::Emit(std::string line) {
  on_line_(line);
  // Reports are for people: of a line without end its beginning will do.
  if (line.size() > kRememberedBytes) line.resize(kRememberedBytes);
  last_.push_back(std::move(line));
  if (last_.size() > kRemembered) last_.pop_front();
}

}  // namespace pando
