#include "tools/pando/run_log.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "ckpt/atomic_file.h"
#include "ckpt/file.h"

namespace pando {
namespace {

using Json = nlohmann::ordered_json;

/// The lines of the log that belong to steps before `first_step`. A line cut off by a crash, or not
/// ours, is dropped.
std::string LinesBefore(const std::string& path, int64_t first_step) {
  std::ifstream in(path);
  std::string kept, line;
  while (std::getline(in, line)) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    if (json["step"].get<int64_t>() < first_step) absl::StrAppend(&kept, line, "\n");
  }
  return kept;
}

}  // namespace

absl::StatusOr<RunLog> RunLog::Open(const std::string& folder, int64_t first_step) {
  RunLog log(folder + "/log.jsonl");
  const std::string kept = LinesBefore(log.path_, first_step);
  if (const absl::Status written = WriteFileAtomically(log.path_, kept); !written.ok()) {
    return written;
  }
  log.out_.open(log.path_, std::ios::app);
  if (!log.out_) return absl::UnavailableError(absl::StrCat(log.path_, ": can't be opened"));
  return log;
}

absl::Status RunLog::Write(const std::string& line) {
  errno = 0;
  out_ << line << "\n" << std::flush;
  return out_ ? absl::OkStatus() : ErrnoStatus(errno, "write to", path_);
}

absl::Status RunLog::Step(const StepReport& report, int64_t memory_bytes) {
  const Json json = {{"step", report.step},
                     {"loss", report.result.loss},
                     {"learning_rate", report.learning_rate},
                     {"grad_norm", report.result.grad_norm},
                     {"seconds", report.seconds},
                     {"tokens_per_second", report.tokens_per_second},
                     {"flops_per_second", report.flops_per_second},
                     {"memory_bytes", memory_bytes}};
  return Write(json.dump());
}

absl::Status RunLog::Evaluation(int64_t step, double loss) {
  return Write(Json({{"step", step}, {"val_loss", loss}}).dump());
}

}  // namespace pando
