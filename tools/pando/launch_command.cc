#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "absl/strings/match.h"
#include "dist/launch/agent.h"
#include "engine/error.h"
#include "tools/pando/commands.h"
#include "tools/pando/saved_model.h"
#include "tools/pando/store_option.h"

namespace pando {
namespace {

struct Options {
  LaunchOptions launch;
  std::string store;
  int64_t join_timeout = 600;
};

/// This program, for `pando launch ... train ...`.
std::string ThisProgram() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

int RunLaunch(Options o) {
  o.launch.store = StoreFromEnvironment(o.store);
  o.launch.join_timeout = std::chrono::seconds(o.join_timeout);
  std::vector<std::string>& command = o.launch.command;
  Require(command.empty() || !absl::StartsWith(command[0], "-"), "unknown option ",
          command.empty() ? "" : command[0], " (see pando launch --help)");
  if (!command.empty() && (command[0] == "train" || command[0] == "pando")) {
    if (command[0] == "train") command.insert(command.begin(), "pando");
    command[0] = ThisProgram();
  }
  return RunAgent(o.launch);
}

}  // namespace

Command AddLaunchCommand(CLI::App& app) {
  auto options = std::make_shared<Options>();
  LaunchOptions& l = options->launch;
  CLI::App* c = AddCommand(
      app, "launch",
      "start the ranks of a job on this node, pass on what they print, and end all when one fails");
  c->add_option("--workers", l.workers, "ranks on this node")->capture_default_str();
  c->add_option("--nodes", l.nodes, "nodes of the job, each with its own pando launch")
      ->capture_default_str();
  c->add_option("--node-rank", l.node_rank, "which of them this one is, from 0")
      ->capture_default_str();
  c->add_option("--store", options->store,
                "where nodes find each other: http://HOST:PORT as node 0 prints it, or an etcd's "
                "members, comma-separated; default: node 0 runs one. Its secret comes from the "
                "environment: PANDO_STORE_SECRET (etcd: PANDO_STORE_USER, _PASSWORD, _CA)");
  c->add_option("--interface", l.address, "this node's address, which the others reach it by")
      ->capture_default_str();
  c->add_option("--port", l.port, "of the store that node 0 runs; 0: any")->capture_default_str();
  c->add_option("--job", l.job, "name that tells jobs on one store apart")->capture_default_str();
  c->add_option("--join-timeout", options->join_timeout, "seconds to wait for the other nodes")
      ->capture_default_str();
  c->prefix_command();
  c->footer(
      "Behind the options comes the program with its arguments; `train ...` is short for `pando "
      "train ...`.\nRanks get torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, ...). Lines of "
      "output are "
      "prefixed with the rank, but for rank 0's line of JSON, which goes to standard output as it "
      "is. SIGINT and SIGTERM are passed on; a second one ends all at once.");
  return {c, [options, c] {
            // What is no option of launch starts the command.
            options->launch.command = c->remaining();
            return RunLaunch(*options);
          }};
}

}  // namespace pando
