#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pando {

/// How the program ends, for schedulers: whether to run the same command again.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,        ///< something went wrong that running again may or may not mend
  kWrongInput = 2,    ///< options, data or a folder: don't run it again as it is
  kDiverged = 3,      ///< the loss is no number any more: don't run it again as it is
  kOutOfMemory = 4,   ///< don't run it again as it is
  kInterrupted = 75,  ///< stopped by a signal after a save: run it again to go on (EX_TEMPFAIL)
};

/// A sub-command of `app` whose options may also be given by a TOML file: `--config`.
CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& description);

/// Adds `--device`, as ChooseDevice takes it.
CLI::Option* AddDeviceOption(CLI::App& command, std::string& device);

/// The arguments with the contents of a --config file put before the command's own, which therefore
/// win. Throws InvalidArgument, naming the file and the line's key, if it can't be read.
std::vector<std::string> WithConfigFile(std::vector<std::string> arguments, const CLI::App& app);

/// A parse error in one line that says what to do.
std::string OneLine(const CLI::ParseError& error);

}  // namespace pando
