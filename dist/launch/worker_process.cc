#include "dist/launch/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dist/launch/worker_environment.h"
#include "engine/status.h"

extern char** environ;

namespace pando {
namespace {

/// Where execvp would find it; empty if nowhere.
std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string rest = path == nullptr ? "/usr/bin:/bin" : path;
  while (true) {
    const size_t end = rest.find(':');
    std::string candidate = rest.substr(0, end) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    if (end == std::string::npos) return "";
    rest.erase(0, end + 1);
  }
}

absl::Status CheckProgram(const std::string& name, const std::string& path) {
  if (path.empty() || access(path.c_str(), F_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("there is no program ", name));
  }
  if (access(path.c_str(), X_OK) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(path, " can't be executed"));
  }
  return absl::OkStatus();
}

/// NAME=VALUE of this process's environment and of `added`, which win.
std::vector<std::string> Environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> all;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string entry = *e;
    if (added.count(entry.substr(0, entry.find('='))) == 0) all.push_back(entry);
  }
  for (const auto& [name, value] : added) all.push_back(absl::StrCat(name, "=", value));
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& w : words) pointers.push_back(w.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// What happens in the child between fork and exec: nothing that allocates.
[[noreturn]] void BecomeWorker(const char* path, char* const* argv, char* const* env, int out,
                               int error, int progress, pid_t agent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != agent) _exit(127);  // it has died in between
  dup2(out, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  fcntl(progress, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(path, argv, env);
  const char text[] = "can't execute the program\n";
  if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) _exit(126);
  _exit(127);
}

/// How many processes the kernel has killed for lack of memory, on this machine or within a limit.
int64_t MemoryKills() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  for (int64_t value = 0; file >> name >> value;) {
    if (name == "oom_kill") return value;
  }
  return 0;
}

/// Whether the pipe is still open. Takes no more than a pipe holds, so that a worker that writes
/// without end doesn't keep its agent from the others.
bool Drain(int fd, LineBuffer& lines) {
  char buffer[65536];
  for (int i = 0; i < 16; ++i) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got > 0) lines.Append({buffer, static_cast<size_t>(got)});
    if (got == 0) return false;
    if (got < 0 && errno != EINTR) return errno == EAGAIN;
  }
  return true;
}

}  // namespace

std::string ExitReason::ToString() const {
  if (signal != 0) {
    return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")",
                        out_of_memory ? ", as the kernel does when memory runs out," : "");
  }
  return absl::StrCat("ended with exit code ", code);
}

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(
    const std::vector<std::string>& command, std::map<std::string, std::string> environment,
    LineBuffer::OnLine on_out, LineBuffer::OnLine on_error) {
  const std::string path = FindProgram(command.at(0));
  PANDO_RETURN_IF_ERROR(CheckProgram(command[0], path));
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<SharedProgress> progress, SharedProgress::Create());
  environment[kProgressVariable] = std::to_string(progress->fd());
  std::vector<std::string> words = command, variables = Environment(environment);
  const std::vector<char*> argv = Pointers(words), env = Pointers(variables);
  int out[2], error[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no pipes: ", std::strerror(errno)));
  }
  std::unique_ptr<WorkerProcess> worker(
      new WorkerProcess(std::move(progress), std::move(on_out), std::move(on_error)));
  worker->memory_kills_before_ = MemoryKills();
  const pid_t agent = getpid();
  worker->pid_ = fork();
  if (worker->pid_ == 0) {
    BecomeWorker(path.c_str(), argv.data(), env.data(), out[1], error[1], worker->progress_->fd(),
                 agent);
  }
  close(out[1]);
  close(error[1]);
  worker->out_ = out[0];
  worker->error_ = error[0];
  if (worker->pid_ < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no process: ", std::strerror(errno)));
  }
  setpgid(worker->pid_, worker->pid_);  // whichever comes first, child or parent
  fcntl(worker->out_, F_SETFL, O_NONBLOCK);
  fcntl(worker->error_, F_SETFL, O_NONBLOCK);
  return worker;
}

WorkerProcess::~WorkerProcess() {
  if (pid_ > 0 && !exit_) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) close(out_);
  if (error_ >= 0) close(error_);
}

void WorkerProcess::Signal(int signal) const {
  if (pid_ > 0) kill(-pid_, signal);
}

void WorkerProcess::Read() {
  if (out_ >= 0 && !Drain(out_, lines_)) {
    close(out_);
    out_ = -1;
  }
  if (error_ >= 0 && !Drain(error_, errors_)) {
    close(error_);
    error_ = -1;
  }
}

bool WorkerProcess::Reap() {
  if (exit_) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  exit_ =
      WIFSIGNALED(status) ? ExitReason{0, WTERMSIG(status)} : ExitReason{WEXITSTATUS(status), 0};
  exit_->out_of_memory = exit_->signal == SIGKILL && MemoryKills() > memory_kills_before_;
  kill(-pid_, SIGKILL);  // what it has left behind
  Read();
  lines_.Finish();
  errors_.Finish();
  return true;
}

}  // namespace pando
