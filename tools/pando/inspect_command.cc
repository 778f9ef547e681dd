#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/checkpoint_folder.h"
#include "ckpt/checkpoint_reader.h"
#include "engine/error.h"
#include "engine/shape.h"
#include "tools/pando/commands.h"

namespace pando {
namespace {

struct InspectOptions {
  std::string path;
  bool json = false;
};

/// The checkpoints at `path`: itself, or, of a run's folder, all it has.
std::vector<std::string> CheckpointsAt(const std::string& path) {
  const absl::StatusOr<std::vector<int64_t>> steps = ListSteps(path);
  if (!steps.ok()) throw InvalidArgument(std::string(steps.status().message()));
  if (steps->empty()) return {path};
  std::vector<std::string> paths;
  for (int64_t step : *steps) paths.push_back(path + "/" + StepFolderName(step));
  return paths;
}

nlohmann::ordered_json ToJson(const CheckpointSummary& s) {
  nlohmann::ordered_json json = {{"path", s.path},
                                 {"valid", s.is_valid},
                                 {"reason", s.reason},
                                 {"step", s.manifest.info.data_step},
                                 {"optimizer_step", s.manifest.info.optimizer_step},
                                 {"bytes", s.manifest.TotalBytes()},
                                 {"metadata", s.manifest.info.metadata}};
  json["tensors"] = nlohmann::ordered_json::array();
  for (const auto& t : s.tensors) {
    json["tensors"].push_back({{"file", t.file}, {"name", t.entry.name}, {"shape", t.entry.shape}});
  }
  return json;
}

void Print(const CheckpointSummary& s) {
  std::cout << s.path << ": "
            << (s.is_valid ? "every byte matches its checksum" : "NOT VALID: " + s.reason) << "\n";
  if (s.manifest.files.empty()) return;
  std::cout << absl::StrFormat("  step %d, %d optimizer steps, %.1f MB\n",
                               s.manifest.info.data_step, s.manifest.info.optimizer_step,
                               static_cast<double>(s.manifest.TotalBytes()) / 1e6);
  for (const auto& [key, value] : s.manifest.info.metadata) {
    std::cout << "  " << key << ": " << value << "\n";
  }
  for (const auto& t : s.tensors) {
    std::cout << "  " << t.file << "  " << t.entry.name << " " << Shape(t.entry.shape).ToString()
              << "\n";
  }
}

int RunInspect(const InspectOptions& options) {
  bool all_valid = true;
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const std::string& path : CheckpointsAt(options.path)) {
    const CheckpointSummary summary = Inspect(path, /*verify=*/true);
    all_valid = all_valid && summary.is_valid;
    if (options.json) {
      array.push_back(ToJson(summary));
    } else {
      Print(summary);
    }
  }
  if (options.json) std::cout << array.dump() << "\n";
  return all_valid ? kDone : kFailed;
}

}  // namespace

Command AddInspectCommand(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      AddCommand(app, "inspect", "show what checkpoints hold, and verify every byte");
  command->add_option("folder", options->path, "a checkpoint, or a run's folder")->required();
  command->add_flag("--json", options->json, "one line of JSON");
  return {command, [options] { return RunInspect(*options); }};
}

}  // namespace pando
