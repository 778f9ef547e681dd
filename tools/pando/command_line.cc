#include "tools/pando/command_line.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/error.h"

namespace pando {
namespace {

/// The value of --config among the arguments, or "".
std::string ConfigFileOf(const std::vector<std::string>& arguments) {
  constexpr char kOption[] = "--config";
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kOption && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].rfind(std::string(kOption) + "=", 0) == 0) {
      return arguments[i].substr(sizeof(kOption));
    }
  }
  return "";
}

}  // namespace

CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& description) {
  CLI::App* command = app.add_subcommand(name, description);
  // What comes last wins: the command line comes behind the file.
  command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command->add_option("--config", "TOML file with any of these options, by their names");
  return command;
}

void AddEmulationOptions(CLI::App& command, double& speed, double& jitter) {
  const std::string group = "Trying a cluster of unlike machines on one";
  command
      .add_option("--emulate-speed", speed,
                  "kernels of the CPU take as long as on a device of this part of its speed")
      ->capture_default_str()
      ->group(group);
  command.add_option("--emulate-jitter", jitter, "and vary by up to this part")
      ->capture_default_str()
      ->group(group);
}

CLI::Option* AddDeviceOption(CLI::App& command, std::string& device) {
  return command
      .add_option("--device", device, "auto (a GPU if there is one), cpu, cuda (cuda:0) or cuda:N")
      ->capture_default_str();
}

std::vector<std::string> WithConfigFile(std::vector<std::string> arguments, const CLI::App& app) {
  const std::string path = ConfigFileOf(arguments);
  if (path.empty() || arguments.empty()) return arguments;
  const auto commands =
      app.get_subcommands([&](const CLI::App* c) { return c->get_name() == arguments[0]; });
  if (commands.empty()) return arguments;
  const CLI::App* command = commands[0];
  std::ifstream file(path);
  std::error_code ignored;
  Require(file.good() && !std::filesystem::is_directory(path, ignored), path,
          ": the configuration file can't be read");
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& e) {
    throw InvalidArgument(absl::StrCat(path, ": not a TOML file: ", e.what()));
  }
  std::vector<std::string> all{arguments[0]};
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // section marks
    const std::string option = "--" + item.name;
    Require(item.parents.empty() && item.name != "config" &&
                command->get_option_no_throw(option) != nullptr,
            path, ": \"", item.fullname(), "\" is no option of pando ", arguments[0]);
    all.push_back(absl::StrCat(option, "=", absl::StrJoin(item.inputs, ",")));
  }
  all.insert(all.end(), arguments.begin() + 1, arguments.end());
  return all;
}

std::string OneLine(const CLI::ParseError& error) {
  std::string text = error.what();
  if (error.get_name() == "ExtrasError") {
    // CLI11 lists what it didn't expect from the last to the first.
    const std::string known = "The following argument";
    const size_t colon = text.find(": ");
    if (text.rfind(known, 0) == 0 && colon != std::string::npos) {
      text = "unknown option or argument: " + text.substr(colon + 2);
    }
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace pando
