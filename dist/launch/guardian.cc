#include "dist/launch/guardian.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pando {
namespace {

/// The guardian's life: nothing that allocates, as it was forked. Groups beyond the table's end
/// have the kernel's signal only.
[[noreturn]] void Guard(int pipe) {
  setsid();  // not the terminal's signals, nor those to the agent's group
  prctl(PR_SET_NAME, "pando guardian");
  dup2(pipe, STDIN_FILENO);
  close(STDOUT_FILENO);  // whose readers wait for the agent's end
  close(STDERR_FILENO);
  std::array<pid_t, 4096> groups{};
  pid_t told = 0;
  ssize_t got = 0;
  while ((got = read(STDIN_FILENO, &told, sizeof(told))) == sizeof(told) ||
         (got < 0 && errno == EINTR)) {
    if (got < 0) continue;
    const pid_t from = told > 0 ? 0 : -told, to = told > 0 ? told : 0;
    for (pid_t& group : groups) {
      if (group != from) continue;
      group = to;
      break;
    }
  }
  for (const pid_t group : groups) {
    if (group > 0) kill(-group, SIGKILL);
  }
  _exit(0);
}

/// The process that has started `pid`, or has inherited it; -1 if `pid` is gone.
pid_t ParentOf(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  // pid (name) state parent: a name may hold anything, a bracket too.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || line.size() < name_end + 4) return -1;
  int parent = -1;
  const size_t begin = name_end + 4;
  return absl::SimpleAtoi(line.substr(begin, line.find(' ', begin) - begin), &parent) ? parent : -1;
}

std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    if (absl::SimpleAtoi(name, &pid) && ParentOf(name) == getpid()) children.push_back(pid);
  }
  return children;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Guardian>> Guardian::Start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no pipe: ", std::strerror(errno)));
  }
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[1]);
    Guard(ends[0]);
  }
  close(ends[0]);
  if (pid < 0) {
    close(ends[1]);
    return absl::ResourceExhaustedError(absl::StrCat("no process: ", std::strerror(errno)));
  }
  return std::unique_ptr<Guardian>(new Guardian(pid, ends[1]));
}

Guardian::~Guardian() {
  close(pipe_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::Tell(pid_t group) const {
  // As short as this it is written whole or not at all; without a guardian it is not needed.
  const ssize_t ignored = write(pipe_, &group, sizeof(group));
  static_cast<void>(ignored);
}

void KillDescendants(pid_t spared) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (std::chrono::steady_clock::now() < deadline) {
    bool any = false;
    for (const pid_t child : Children()) {
      if (child == spared) continue;
      any = true;
      kill(child, SIGKILL);
      waitpid(child, nullptr, WNOHANG);
    }
    if (!any) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace pando
