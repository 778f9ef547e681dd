// The pando program: see `pando --help`.
#include <algorithm>
#include <iostream>
#include <vector>

#include "engine/error.h"
#include "tools/pando/commands.h"

namespace pando {
namespace {

int Main(int argc, char** argv) {
  CLI::App app("Pando trains GPT-class models on the machines you have.", "pando");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done; 1 failed; 2 wrong options, data or folder; 3 the loss diverged; 4 out "
      "of "
      "memory;\n75 interrupted after a save, 76 another rank was lost: run the same command again "
      "to go "
      "on.");
  const std::vector<Command> commands = {
      AddTrainCommand(app), AddSampleCommand(app), AddInspectCommand(app), AddLaunchCommand(app),
      AddStoreCommand(app), AddPlanCommand(app),   AddProfileCommand(app)};
  std::string name = "pando";
  const auto fail = [&name](std::string text, ExitCode code) {
    std::replace(text.begin(), text.end(), '\n', ' ');  // one line
    std::cerr << name << ": " << text << std::endl;
    return code;
  };
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    for (const Command& command : commands) {
      if (!arguments.empty() && command.app->get_name() == arguments[0]) name += " " + arguments[0];
    }
    arguments = WithConfigFile(arguments, app);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
    return kFailed;
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return fail(OneLine(e) + " (see " + name + " --help)", kWrongInput);
  } catch (const InvalidArgument& e) {
    return fail(e.what(), kWrongInput);
  } catch (const NonFinite& e) {
    return fail(e.what(), kDiverged);
  } catch (const PeerLost& e) {
    return fail(e.what(), kPeerLost);
  } catch (const OutOfMemory& e) {
    return fail(e.what(), kOutOfMemory);
  } catch (const std::bad_alloc&) {
    return fail("the machine has no memory left", kOutOfMemory);
  } catch (const std::exception& e) {
    return fail(e.what(), kFailed);
  }
}

}  // namespace
}  // namespace pando

// What may still escape is that there is no memory at all, not even for a message.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) { return pando::Main(argc, argv); }
