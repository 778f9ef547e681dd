#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "dist/launch/exit_code.h"

namespace pando {

/// A sub-command of `app` whose options may also be given by a TOML file: `--config`.
CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& description);

/// Adds `--device`, as ChooseDevice takes it.
CLI::Option* AddDeviceOption(CLI::App& command, std::string& device);

/// Adds `--emulate-speed` and `--emulate-jitter`.
void AddEmulationOptions(CLI::App& command, double& speed, double& jitter);

/// The arguments with the contents of a --config file put before the command's own, which therefore
/// win. Throws InvalidArgument, naming the file and the line's key, if it can't be read.
std::vector<std::string> WithConfigFile(std::vector<std::string> arguments, const CLI::App& app);

/// A parse error in one line that says what to do.
std::string OneLine(const CLI::ParseError& error);

}  // namespace pando
