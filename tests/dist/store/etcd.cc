#include "tests/dist/store/etcd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace pando {
namespace {

/// 0 if it can't be started.
pid_t Spawn(std::vector<std::string> words) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_WRONLY, 0);
  }
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &quiet, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&quiet);
  return error == 0 ? pid : 0;
}

}  // namespace

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

int RunProgram(const std::vector<std::string>& words) {
  const pid_t pid = Spawn(words);
  int status = -1;
  if (pid == 0 || waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::unique_ptr<Etcd> Etcd::Start(const std::string& scheme,
                                  const std::vector<std::string>& flags) {
  for (const char* path : {"/usr/bin/etcd", "/usr/local/bin/etcd"}) {
    if (std::filesystem::exists(path)) return std::unique_ptr<Etcd>(new Etcd(path, scheme, flags));
  }
  return nullptr;
}

Etcd::Etcd(const std::string& program, const std::string& scheme,
           const std::vector<std::string>& flags)
    : folder_(absl::StrCat(testing::TempDir(), "/etcd-", getpid(), "-", FreePort())),
      url_(absl::StrCat(scheme, "://127.0.0.1:", FreePort())) {
  const std::string peer = absl::StrCat("http://127.0.0.1:", FreePort());
  words_ = {program,
            "--data-dir=" + folder_,
            "--listen-client-urls=" + url_,
            "--advertise-client-urls=" + url_,
            "--listen-peer-urls=" + peer,
            "--initial-advertise-peer-urls=" + peer,
            "--initial-cluster=default=" + peer,
            "--logger=zap",
            "--log-outputs=/dev/null"};
  words_.insert(words_.end(), flags.begin(), flags.end());
  Run();
}

Etcd::~Etcd() {
  Kill();
  std::filesystem::remove_all(folder_);
}

void Etcd::Run() { pid_ = Spawn(words_); }

void Etcd::Kill() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Etcd::Restart() {
  Kill();
  Run();
}

}  // namespace pando
