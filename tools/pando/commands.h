#pragma once

#include "tools/pando/command_line.h"

namespace pando {

/// Each adds its command to the program; the returned function, called after parsing, runs it and
/// returns the exit code. What it throws, main turns into one line.
struct Command {
  CLI::App* app;
  std::function<int()> run;
};

Command AddTrainCommand(CLI::App& app);
Command AddSampleCommand(CLI::App& app);
Command AddInspectCommand(CLI::App& app);
Command AddLaunchCommand(CLI::App& app);
Command AddStoreCommand(CLI::App& app);
Command AddPlanCommand(CLI::App& app);
Command AddProfileCommand(CLI::App& app);

}  // namespace pando
