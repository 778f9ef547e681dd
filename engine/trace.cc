#include "engine/trace.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pando {
namespace {

struct Span {
  std::string_view name;
  int64_t start_ns, end_ns;
  uint64_t thread;
};

std::mutex mu;
std::vector<Span>& Spans() {
  static auto* spans = new std::vector<Span>;
  return *spans;
}

}  // namespace

namespace internal {

int64_t TraceClockNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void AddSpan(std::string_view name, int64_t start_ns, int64_t end_ns) {
  const std::lock_guard<std::mutex> lock(mu);
  Spans().push_back(
      {name, start_ns, end_ns, std::hash<std::thread::id>()(std::this_thread::get_id())});
}

}  // namespace internal

void StartTrace() {
  const std::lock_guard<std::mutex> lock(mu);
  Spans().clear();
  internal::tracing = true;
}

absl::Status FinishTrace(const std::string& path) {
  internal::tracing = false;
  const std::lock_guard<std::mutex> lock(mu);
  std::ofstream out(path);
  out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const char* separator = "";
  for (const Span& s : Spans()) {
    // Times in microseconds; names are identifiers and need no escaping.
    out << separator
        << absl::StrFormat(R"({"name":"%s","ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f})",
                           std::string(s.name), getpid(), s.thread % 100000,
                           static_cast<double>(s.start_ns) / 1e3,
                           static_cast<double>(s.end_ns - s.start_ns) / 1e3);
    separator = ",\n";
  }
  out << "\n]}\n";
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat(path, ": the trace can't be written"));
  return absl::OkStatus();
}

}  // namespace pando
