#pragma once

// What runs when, for `--profile`: spans of time on the host's threads, written as a Chrome trace
// (chrome://tracing, Perfetto). On the CPU a kernel's span is its run; on an accelerator, its
// launch.

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace pando {

namespace internal {
inline std::atomic<bool> tracing{false};
void AddSpan(std::string_view name, int64_t start_ns, int64_t end_ns);
int64_t TraceClockNs();
}  // namespace internal

/// Forgets earlier spans and begins to collect.
void StartTrace();
/// Stops collecting and writes what was collected to `path`.
absl::Status FinishTrace(const std::string& path);

/// Collects its own lifetime under `name`, which must outlive the trace (a literal).
class TraceSpan {
 public:
  explicit TraceSpan(std::string_view name)
      : name_(name),
        start_ns_(internal::tracing.load(std::memory_order_relaxed) ? internal::TraceClockNs()
                                                                    : -1) {}
  ~TraceSpan() {
    if (start_ns_ >= 0) internal::AddSpan(name_, start_ns_, internal::TraceClockNs());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  std::string_view name_;
  int64_t start_ns_;
};

/// The name under which kernels that take `Args` are traced: "MatmulArgs" is "Matmul".
template <typename Args>
constexpr std::string_view KernelName() {
  // "... KernelName() [with Args = pando::MatmulArgs; ..." with g++, "[Args = ...]" with clang.
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.find("Args = ") + 7);
  name = name.substr(0, name.find_first_of(";]"));
  const size_t scope = name.rfind("::");
  if (scope != std::string_view::npos) name.remove_prefix(scope + 2);
  if (name.size() > 4 && name.substr(name.size() - 4) == "Args") name.remove_suffix(4);
  return name;
}

}  // namespace pando
