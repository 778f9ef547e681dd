#include "dist/launch/progress_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dist/launch/worker_environment.h"

namespace pando {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(50);

/// Where a worker without an agent writes.
ProgressPage nobody_listens;
std::atomic<ProgressPage*> current{&nobody_listens};

ProgressPage* Map(int fd) {
  void* memory = mmap(nullptr, sizeof(ProgressPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<ProgressPage*>(memory);
}

/// The page that the environment names; null where there is none, or it isn't one.
ProgressPage* FromEnvironment() {
  const char* text = std::getenv(kProgressVariable);
  int fd = -1;
  struct stat info {};
  if (text == nullptr || !absl::SimpleAtoi(text, &fd) || fstat(fd, &info) != 0 ||
      info.st_size != static_cast<off_t>(sizeof(ProgressPage))) {
    return nullptr;
  }
  return Map(fd);
}

int64_t NowMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace

const char* Name(Phase phase) {
  constexpr const char* kNames[] = {
      "starting",       "forming",   "forward",    "backward", "gather",
      "reduce-scatter", "optimizer", "evaluation", "save",     "done"};
  const auto i = static_cast<size_t>(phase);
  return i < std::size(kNames) ? kNames[i] : "an unknown phase";
}

absl::StatusOr<std::unique_ptr<SharedProgress>> SharedProgress::Create() {
  const int fd = memfd_create("pando progress", MFD_CLOEXEC);
  ProgressPage* page = fd >= 0 && ftruncate(fd, sizeof(ProgressPage)) == 0 ? Map(fd) : nullptr;
  if (page == nullptr) {
    return absl::InternalError(absl::StrCat("no memory to share: ", std::strerror(errno)));
  }
  return std::unique_ptr<SharedProgress>(new SharedProgress(fd, page));
}

SharedProgress::~SharedProgress() {
  munmap(page_, sizeof(ProgressPage));
  close(fd_);
}

void StartHeartbeat() {
  ProgressPage* page = FromEnvironment();
  if (page == nullptr) return;
  current = page;
  std::thread([page] {
    while (true) {
      page->heartbeat_ms = NowMs();
      std::this_thread::sleep_for(kBeat);
    }
  }).detach();
}

void ReportPhase(Phase phase) { current.load()->phase = static_cast<int64_t>(phase); }
Phase CurrentPhase() { return static_cast<Phase>(current.load()->phase.load()); }
void ReportStep(int64_t step) { current.load()->step = step; }
void ReportCollective() { ++current.load()->collectives; }

}  // namespace pando
