#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace pando {

inline constexpr char kNoEtcd[] = "etcd is not installed (package etcd-server)";

/// A TCP port of this machine that nobody listens at now.
int FreePort();

/// Runs a program to its end, without output; its exit code, or -1 if it can't be run.
int RunProgram(const std::vector<std::string>& words);

/// A process of a real etcd, of one member, ended with this.
class Etcd {
 public:
  /// `flags`: more of etcd's own. None where etcd is not installed.
  static std::unique_ptr<Etcd> Start(const std::string& scheme = "http",
                                     const std::vector<std::string>& flags = {});
  ~Etcd();
  Etcd(const Etcd&) = delete;
  Etcd& operator=(const Etcd&) = delete;

  const std::string& url() const { return url_; }
  /// Kills it and starts it again at the same place, with what it had stored.
  void Restart();

 private:
  Etcd(const std::string& program, const std::string& scheme,
       const std::vector<std::string>& flags);
  void Run();
  void Kill();

  std::string folder_;
  std::string url_;
  std::vector<std::string> words_;
  pid_t pid_ = 0;
};

}  // namespace pando
