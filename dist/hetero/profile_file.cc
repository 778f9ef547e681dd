#include "dist/hetero/profile_file.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/status.h"

namespace pando {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the profile: ", what));
}

absl::StatusOr<DType> ParseDType(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (Name(dtype) == name) return dtype;
  }
  return Wrong(absl::StrCat("precision ", name, " is not one that training computes in"));
}

}  // namespace

std::string FormatProfile(const MeasuredProfile& p) {
  Json json = {{"device", p.device}, {"model", p.model},
               {"length", p.length}, {"precision", std::string(Name(p.dtype))},
               {"memory", p.memory}, {"optimizer_seconds", p.optimizer_seconds}};
  for (const PlanUnit& u : p.units) json["units"].push_back({u.elements, u.gathers});
  for (const MeasuredProfile::Way& w : p.ways) {
    Json way = {{"recompute", w.recompute},
                {"fixed_bytes", w.fixed_bytes},
                {"bytes_per_sample", w.bytes_per_sample}};
    for (const TimeCurve::Point& point : w.points) {
      way["points"].push_back({point.batch, point.seconds});
    }
    json["ways"].push_back(std::move(way));
  }
  return json.dump(1) + "\n";
}

absl::StatusOr<MeasuredProfile> ParseProfile(const std::string& text) {
  MeasuredProfile p;
  try {
    const Json json = Json::parse(text);
    p.device = json.at("device");
    p.model = json.at("model");
    p.length = json.at("length");
    PANDO_ASSIGN_OR_RETURN(p.dtype, ParseDType(json.at("precision").get<std::string>()));
    p.memory = json.at("memory");
    p.optimizer_seconds = json.at("optimizer_seconds");
    for (const Json& u : json.at("units")) {
      p.units.push_back({u.at(0).get<int64_t>(), u.at(1).get<int>()});
    }
    for (const Json& w : json.at("ways")) {
      MeasuredProfile::Way way{
          w.at("recompute"), w.at("fixed_bytes"), w.at("bytes_per_sample"), {}};
      for (const Json& point : w.at("points")) {
        way.points.push_back({point.at(0).get<int64_t>(), point.at(1).get<double>()});
      }
      p.ways.push_back(std::move(way));
    }
  } catch (const nlohmann::json::exception& e) {
    return Wrong(e.what());
  }
  if (p.length <= 0 || p.units.empty() || p.memory <= 0 || p.optimizer_seconds < 0) {
    return Wrong("length, units, memory and optimizer_seconds must be above 0");
  }
  PANDO_RETURN_IF_ERROR(ToDevice(p).status());
  return p;
}

absl::StatusOr<DeviceProfile> ToDevice(const MeasuredProfile& profile) {
  DeviceProfile device;
  device.memory = profile.memory;
  device.optimizer_seconds = profile.optimizer_seconds;
  for (const MeasuredProfile::Way& w : profile.ways) {
    const absl::StatusOr<TimeCurve> curve = TimeCurve::Fit(w.points);
    if (!curve.ok()) return Wrong(std::string(curve.status().message()));
    if (w.fixed_bytes < 0 || w.bytes_per_sample < 0) return Wrong("memory below 0");
    device.computes.push_back({w.recompute, *curve, w.fixed_bytes, w.bytes_per_sample});
  }
  if (device.computes.empty()) return Wrong("it has no ways to compute");
  return device;
}

}  // namespace pando
