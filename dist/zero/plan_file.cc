#include "dist/zero/plan_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "engine/error.h"

namespace pando {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the plan: ", what));
}

/// OK if `object` has these fields and no others, but for `optional` ones.
absl::Status CheckFields(const Json& object, const std::set<std::string>& fields,
                         const std::set<std::string>& optional, const std::string& where) {
  if (!object.is_object()) return Wrong(absl::StrCat(where, " is not an object"));
  for (const std::string& f : fields) {
    if (!object.contains(f)) return Wrong(absl::StrCat(where, " has no ", f));
  }
  for (const auto& [name, _] : object.items()) {
    if (fields.count(name) + optional.count(name) == 0)
      return Wrong(absl::StrCat(where, " has an unknown field ", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Count(const Json& object, const char* field, const std::string& where) {
  const Json& value = object.at(field);
  if (value.is_number_integer() && value.get<int64_t>() >= 0) return value.get<int64_t>();
  return Wrong(absl::StrCat(where, ": ", field, " is ", value.dump(), ", not a count"));
}

absl::Status AddRank(const Json& object, TrainPlan* plan) {
  const std::string where = absl::StrCat("rank ", plan->shares.size());
  absl::Status fields = CheckFields(
      object, {"micro_batch", "micro_steps", "last_micro_batch", "share"}, {"recompute"}, where);
  if (!fields.ok()) return fields;
  int64_t counts[3];
  constexpr const char* kCounts[] = {"micro_batch", "micro_steps", "last_micro_batch"};
  for (size_t i = 0; i < 3; ++i) {
    const absl::StatusOr<int64_t> count = Count(object, kCounts[i], where);
    if (!count.ok()) return count.status();
    counts[i] = *count;
  }
  const Json& share = object.at("share");
  if (!share.is_number() || share.get<double>() < 0) {
    return Wrong(absl::StrCat(where, ": share is ", share.dump(), ", not a part of the whole"));
  }
  plan->batches.ranks.push_back({counts[0], counts[1], counts[2]});
  plan->shares.push_back(share.get<double>());
  if (object.contains("recompute")) {
    const Json& recompute = object.at("recompute");
    if (!recompute.is_boolean()) {
      return Wrong(absl::StrCat(where, ": recompute is ", recompute.dump(), ", not true or false"));
    }
    plan->recompute.push_back(recompute.get<bool>());
  }
  return absl::OkStatus();
}

}  // namespace

std::string FormatPlan(const TrainPlan& plan) {
  Require(plan.shares.empty() || plan.shares.size() == plan.batches.ranks.size(),
          plan.shares.size(), " shares for ", plan.batches.ranks.size(), " ranks");
  std::string text = absl::StrCat("{\"zero_stage\": ", plan.zero_stage, ", \"ranks\": [");
  for (size_t r = 0; r < plan.batches.ranks.size(); ++r) {
    const RankBatch& b = plan.batches.ranks[r];
    Json line = {{"micro_batch", b.micro_batch},
                 {"micro_steps", b.micro_steps},
                 {"last_micro_batch", b.last_micro_batch},
                 {"share", plan.shares.empty() ? 1.0 : plan.shares[r]}};
    if (!plan.recompute.empty()) line["recompute"] = static_cast<bool>(plan.recompute[r]);
    absl::StrAppend(&text, r == 0 ? "\n  " : ",\n  ", line.dump());
  }
  return text + "]}\n";
}

absl::StatusOr<TrainPlan> ParsePlan(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Wrong("it is not JSON");
  absl::Status fields = CheckFields(json, {"zero_stage", "ranks"}, {}, "it");
  if (!fields.ok()) return fields;
  const absl::StatusOr<int64_t> stage = Count(json, "zero_stage", "it");
  if (!stage.ok()) return stage.status();
  if (*stage > 3) return Wrong(absl::StrCat("zero_stage is ", *stage, ": there are 0 to 3"));
  TrainPlan plan;
  plan.zero_stage = static_cast<int>(*stage);
  for (const Json& rank : json.at("ranks")) {
    absl::Status added = AddRank(rank, &plan);
    if (!added.ok()) return added;
  }
  if (plan.shares.empty()) return Wrong("it has no ranks");
  if (!plan.recompute.empty() && plan.recompute.size() != plan.shares.size()) {
    return Wrong("some ranks have recompute, and some don't: give it for all or none");
  }
  if (std::all_of(plan.shares.begin(), plan.shares.end(), [](double s) { return s == 0; })) {
    return Wrong("all shares are 0, but somebody must hold the parameters");
  }
  try {
    plan.batches.Check(plan.zero_stage);
  } catch (const InvalidArgument& e) {
    return Wrong(e.what());
  }
  return plan;
}

}  // namespace pando
