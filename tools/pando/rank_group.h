#pragma once

#include <memory>
#include <string>

#include "dist/communicator/communicator.h"
#include "dist/launch/worker_environment.h"
#include "engine/device.h"

namespace pando {

/// How ranks reach each other.
struct RankGroupOptions {
  std::string interface = "127.0.0.1";  ///< this rank's address
  double timeout_seconds = 300;         ///< after which a peer that doesn't answer is lost
};

/// This process's place among those that train together: alone, or one of those that a launcher has
/// started.
class RankGroup {
 public:
  /// Finds out who this is. Throws InvalidArgument for an environment that makes no sense.
  RankGroup();

  /// Connects to the others, for spans on `device`. Throws PeerLost, InvalidArgument.
  void Form(const RankGroupOptions& options, Device& device);
  /// Waits for the others, so that none leaves while one still needs it.
  void Leave();

  int rank() const { return environment_.rank; }
  int size() const { return environment_.world_size; }
  int local_rank() const { return environment_.local_rank; }
  /// Whether this is the rank that talks and writes files.
  bool first() const { return rank() == 0; }
  /// Null where this process is alone.
  Communicator* communicator() const { return communicator_.get(); }

 private:
  WorkerEnvironment environment_;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace pando
