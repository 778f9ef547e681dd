#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace pando {

struct StoreServerOptions {
  /// Name or address to listen on: of this machine alone, unless told otherwise.
  std::string address = "127.0.0.1";
  int port = 0;  ///< 0: any that is free
  /// What every request must carry.
  std::string secret;
};

/// The embedded store: speaks the part of etcd's v3 JSON API that StoreClient uses (kv, lease,
/// watch), keeps everything in memory, and forgets it when it ends. Runs on threads of its own.
class StoreServer {
 public:
  /// Unavailable if the address can't be listened on; InvalidArgument without a secret.
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(const StoreServerOptions& options);
  ~StoreServer();

  int port() const;
  /// "http://127.0.0.1:2379".
  std::string url() const;

 private:
  class Impl;
  explicit StoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A secret that nobody can guess: 32 hexadecimal digits from the system's random numbers.
std::string NewSecret();

}  // namespace pando
