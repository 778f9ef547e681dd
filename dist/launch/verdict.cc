#include "dist/launch/verdict.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "dist/launch/exit_code.h"

namespace pando {
namespace {

// A beat comes every 50 ms; a busy machine may delay many.
constexpr int64_t kSilentMs = 2000;

std::string Where(const WorkerReport& r) {
  return r.step == 0 && r.phase <= Phase::kForming
             ? absl::StrCat(" while ", Name(r.phase))
             : absl::StrCat(" in ", Name(r.phase), " of step ", r.step);
}

/// `others_speak`: some worker of this node says what it is at, as pando's own programs do.
Verdict JudgeOne(const WorkerReport& r, bool others_speak) {
  Verdict v;
  v.rank = r.rank;
  v.last_lines = r.last_lines;
  const std::string rank = absl::StrCat("rank ", r.rank, " ");
  if (r.ended && !r.exit.ok() && r.exit.code != kPeerLost && r.exit.code != kInterrupted) {
    v.weight = Verdict::kDied;
    v.order = r.ended_ms;
    v.exit_code = r.exit.signal != 0 ? kFailed : r.exit.code;
    v.text = absl::StrCat(rank, r.exit.ToString(), Where(r));
  } else if (!r.ended && r.silent_ms > kSilentMs) {
    v.weight = Verdict::kSilent;
    v.order = -r.silent_ms;
    v.text = absl::StrCat(rank, "has not run for ", r.silent_ms / 1000, " s", Where(r),
                          ": it is stopped, or its machine is overloaded");
  } else if (!r.ended && !r.heard && others_speak) {
    v.weight = Verdict::kSilent;
    v.text = absl::StrCat(rank, "has not said a word since it was started: it is stopped");
  } else if (r.collectives > 0 || r.ended) {
    v.weight = Verdict::kBehind;
    v.order = r.collectives;
    v.text = absl::StrCat(rank, "is behind the others, or can't be reached: it has started ",
                          r.collectives, " collectives, and is", Where(r));
  }
  return v;
}

}  // namespace

Verdict Judge(const std::vector<WorkerReport>& reports) {
  const bool any_speaks =
      std::any_of(reports.begin(), reports.end(), [](const auto& r) { return r.heard; });
  Verdict worst;
  for (const WorkerReport& r : reports) {
    Verdict v = JudgeOne(r, any_speaks);
    if (v.weight != Verdict::kNobody && (worst.weight == Verdict::kNobody || v < worst)) {
      worst = std::move(v);
    }
  }
  return worst;
}

std::string Verdict::Serialize() const {
  const nlohmann::json json = {{"weight", static_cast<int>(weight)},
                               {"order", order},
                               {"rank", rank},
                               {"exit_code", exit_code},
                               {"text", text},
                               {"last_lines", last_lines}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<Verdict> Verdict::Parse(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    Verdict v;
    v.weight = static_cast<Weight>(json.at("weight").get<int>());
    v.order = json.at("order");
    v.rank = json.at("rank");
    v.exit_code = json.at("exit_code");
    v.text = json.at("text");
    v.last_lines = json.at("last_lines").get<std::vector<std::string>>();
    return v;
  } catch (const nlohmann::json::exception& e) {
    return absl::DataLossError(absl::StrCat("not a verdict: ", e.what()));
  }
}

}  // namespace pando
