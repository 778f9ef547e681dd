#include "tools/pando/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pando {
namespace {

// A person reads a line elsewhere than on a terminal this often, and a terminal flickers at this.
constexpr double kSecondsBetweenLines = 10;
constexpr double kSecondsBetweenBars = 0.1;
constexpr int kBarWidth = 24;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string Left(double seconds) {
  const int64_t s = static_cast<int64_t>(seconds);
  return s < 3600 ? absl::StrFormat("%d:%02d", s / 60, s % 60)
                  : absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace

std::string WithPrefix(double value, const std::string& unit) {
  const char* prefixes[] = {"", "k", "M", "G", "T", "P"};
  int i = 0;
  while (value >= 1000 && i < 5) {
    value /= 1000;
    ++i;
  }
  return absl::StrFormat("%.3g %s%s", value, prefixes[i], unit);
}

Progress::Progress(int64_t steps, bool shown)
    : steps_(steps), shown_(shown), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { ClearBar(); }

void Progress::ClearBar() {
  if (bar_shown_) std::cerr << "\r\033[K";
  bar_shown_ = false;
}

void Progress::Step(const StepReport& report) {
  const double now = Now();
  const bool last = report.step + 1 == steps_;
  if (!shown_) return;
  if (!last && now - last_shown_ < (terminal_ ? kSecondsBetweenBars : kSecondsBetweenLines)) return;
  last_shown_ = now;
  const int64_t done = report.step + 1;
  const std::string numbers =
      absl::StrFormat("step %d/%d  loss %.4f  lr %.2e  norm %.2f  %s  %s  %s left", done, steps_,
                      report.result.loss, report.learning_rate, report.result.grad_norm,
                      WithPrefix(report.tokens_per_second, "tokens/s"),
                      WithPrefix(report.flops_per_second, "FLOP/s"),
                      Left(static_cast<double>(steps_ - done) * report.seconds));
  if (!terminal_) {
    std::cerr << numbers << "\n";
    return;
  }
  const int filled = static_cast<int>(done * kBarWidth / std::max<int64_t>(1, steps_));
  std::cerr << "\r\033[K[" << std::string(filled, '#') << std::string(kBarWidth - filled, '.')
            << "] " << numbers << std::flush;
  bar_shown_ = true;
}

void Progress::Evaluation(int64_t step, double loss) {
  Note(absl::StrFormat("step %d  validation loss %.4f", step, loss));
}

void Progress::Note(const std::string& text) {
  if (!shown_) return;
  ClearBar();
  std::cerr << text << "\n";
}

}  // namespace pando
