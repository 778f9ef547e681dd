#include "tools/pando/run_log.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "ckpt/atomic_file.h"
#include "engine/status.h"

namespace pando {
namespace {

using Json = nlohmann::ordered_json;

// Linux looks for a SIGKILL between the pages that a write touches and not within one, so a line
// within a page can't be cut. Lines are about 250 bytes long.
constexpr int64_t kPage = 4096;
constexpr int64_t kLongestLine = 512;

/// The line as it stands at byte `at`: where another one might not fit into the page, spaces fill
/// it.
std::string Padded(std::string line, int64_t at) {
  const int64_t left = kPage - (at + static_cast<int64_t>(line.size()) + 1) % kPage;
  if (left < kLongestLine) line.append(static_cast<size_t>(left), ' ');
  return line + "\n";
}

/// The lines of the log that belong to steps before `first_step`. A line that is cut off, or not
/// ours, is dropped.
std::string LinesBefore(const std::string& path, int64_t first_step) {
  std::ifstream in(path);
  std::string kept, line;
  while (std::getline(in, line)) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    if (json["step"].get<int64_t>() >= first_step) continue;
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&kept, Padded(line, static_cast<int64_t>(kept.size())));
  }
  return kept;
}

}  // namespace

absl::StatusOr<RunLog> RunLog::Open(const std::string& folder, int64_t first_step) {
  const std::string path = folder + "/log.jsonl";
  const std::string kept = LinesBefore(path, first_step);
  PANDO_RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  PANDO_ASSIGN_OR_RETURN(File out, File::OpenForAppending(path));
  return RunLog(std::move(out), static_cast<int64_t>(kept.size()));
}

absl::Status RunLog::Write(const std::string& line) {
  const std::string padded = Padded(line, size_);
  PANDO_RETURN_IF_ERROR(out_.AppendOrNothing(BytesOf(padded)));
  size_ += static_cast<int64_t>(padded.size());
  return absl::OkStatus();
}

absl::Status RunLog::Step(const StepReport& report, int64_t memory_bytes) {
  Json json = {{"step", report.step},
               {"loss", report.result.loss},
               {"learning_rate", report.learning_rate},
               {"grad_norm", report.result.grad_norm},
               {"seconds", report.seconds},
               {"tokens_per_second", report.tokens_per_second},
               {"flops_per_second", report.flops_per_second},
               {"memory_bytes", memory_bytes}};
  if (report.result.loss_scale) {
    json["loss_scale"] = *report.result.loss_scale;
    json["skipped"] = report.result.skipped;
  }
  return Write(json.dump());
}

absl::Status RunLog::Evaluation(int64_t step, double loss) {
  return Write(Json({{"step", step}, {"val_loss", loss}}).dump());
}

}  // namespace pando
