#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <thread>

#include "dist/launch/worker_environment.h"
#include "dist/store/store_server.h"
#include "tools/pando/commands.h"
#include "tools/pando/interrupt.h"
#include "tools/pando/saved_model.h"
#include "tools/pando/store_option.h"

namespace pando {
namespace {

int RunStore(StoreServerOptions options) {
  options.secret = StoreFromEnvironment("").secret;
  const bool fresh = options.secret.empty();
  if (fresh) options.secret = NewSecret();
  CatchInterrupts();
  const auto server = ValueOrThrow(StoreServer::Start(options));
  std::cout << kStoreVariable << "=" << server->url() << "\n";
  if (fresh) std::cout << kSecretVariable << "=" << options.secret << "\n";
  std::cout << std::flush;
  while (!Interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return kDone;
}

}  // namespace

Command AddStoreCommand(CLI::App& app) {
  auto options = std::make_shared<StoreServerOptions>();
  CLI::App* c = AddCommand(app, "store",
                           "run the store alone, in memory, in which ranks find each other: where "
                           "srun, mpirun or torchrun start them");
  c->add_option("--interface", options->address, "address to listen on")->capture_default_str();
  c->add_option("--port", options->port, "0: any; it is printed")->capture_default_str();
  c->footer(
      "Prints the variables to give to all ranks. The secret is PANDO_STORE_SECRET of the "
      "environment, else a new one, which is printed too.");
  return {c, [options] { return RunStore(*options); }};
}

}  // namespace pando
