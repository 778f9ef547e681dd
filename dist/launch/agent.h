#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "dist/store/store_client.h"

namespace pando {

/// What `pando launch` is told.
struct LaunchOptions {
  std::vector<std::string> command;  ///< the program and its arguments
  int workers = 1;                   ///< on this node
  int nodes = 1;
  int node_rank = 0;
  /// Where agents and ranks find each other; without endpoints node 0 runs an embedded store.
  StoreOptions store;
  /// The embedded store's address: what other nodes reach this one by.
  std::string address = "127.0.0.1";
  int port = 0;
  std::string job = "job";  ///< tells jobs on one store apart
  std::chrono::seconds join_timeout{600};
};

/// Starts this node's workers, passes their output and signals on, and ends all of the job's when
/// one fails: the agent of one node. Returns the exit code. Throws InvalidArgument for a program
/// that can't be started, Error if the other nodes or the store can't be reached.
int RunAgent(const LaunchOptions& options);

}  // namespace pando
