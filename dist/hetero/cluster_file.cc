#include "dist/hetero/cluster_file.h"

#include <set>
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "absl/strings/str_cat.h"
#include "engine/status.h"

namespace pando {
namespace {

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the cluster: ", what));
}

absl::Status CheckFields(const toml::table& table, const std::set<std::string>& known,
                         const std::string& where) {
  for (const auto& [key, value] : table) {
    const std::string name(key.str());
    if (known.count(name) == 0) {
      return Wrong(absl::StrCat(where, " has an unknown field ", name));
    }
  }
  return absl::OkStatus();
}

/// A positive number; `otherwise` where there is none, unless that is 0 or less.
absl::StatusOr<double> Number(const toml::table& table, const char* field, double otherwise,
                              const std::string& where) {
  if (!table.contains(field) && otherwise >= 0) return otherwise;
  const auto value = table[field].value<double>();
  if (value && *value > 0) return *value;
  return Wrong(absl::StrCat(where, ": ", field, " must be a number above 0"));
}

absl::StatusOr<int> Count(const toml::table& table, const char* field, const std::string& where) {
  PANDO_ASSIGN_OR_RETURN(const double number, Number(table, field, 1, where));
  if (number == static_cast<int>(number) && number <= 1e6) return static_cast<int>(number);
  return Wrong(absl::StrCat(where, ": ", field, " is ", number, ", not a count"));
}

absl::Status AddNodes(const toml::table& table, const std::string& where, Cluster& cluster) {
  PANDO_RETURN_IF_ERROR(
      CheckFields(table, {"gpu", "profile", "gpus", "count", "memory_gb", "link_gbit"}, where));
  ClusterNode node;
  node.profile = table["profile"].value_or(std::string());
  const auto name = table["gpu"].value<std::string>();
  if (name.has_value() != node.profile.empty()) {
    return Wrong(absl::StrCat(where, " needs gpu = \"...\" or profile = \"...\", one of them"));
  }
  if (name) {
    const auto gpu = FindGpu(*name);
    if (!gpu.ok()) return Wrong(absl::StrCat(where, ": ", std::string(gpu.status().message())));
    node.gpu = *gpu;
  }
  PANDO_ASSIGN_OR_RETURN(node.gpus, Count(table, "gpus", where));
  PANDO_ASSIGN_OR_RETURN(const double gb, Number(table, "memory_gb", 0, where));
  node.memory = gb * 1e9;
  PANDO_ASSIGN_OR_RETURN(const double gbit, Number(table, "link_gbit", 0, where));
  node.link = gbit * 1e9 / 8;
  if (node.gpu != nullptr && node.memory > node.gpu->memory) {
    return Wrong(absl::StrCat(where, ": memory_gb is ", gb, ", but the ", node.gpu->name, " has ",
                              node.gpu->memory / 1e9));
  }
  PANDO_ASSIGN_OR_RETURN(const int count, Count(table, "count", where));
  cluster.nodes.insert(cluster.nodes.end(), static_cast<size_t>(count), node);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Cluster> ParseCluster(const std::string& text) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return Wrong(absl::StrCat("line ", parsed.error().source().begin.line, ": ",
                              std::string(parsed.error().description())));
  }
  const toml::table& table = parsed.table();
  PANDO_RETURN_IF_ERROR(CheckFields(table, {"network_gbit", "node"}, "it"));
  Cluster cluster;
  const toml::array* nodes = table["node"].as_array();
  if (nodes == nullptr || nodes->empty()) return Wrong("it has no [[node]]");
  for (size_t i = 0; i < nodes->size(); ++i) {
    const std::string where = absl::StrCat("node ", i);
    const toml::table* node = (*nodes)[i].as_table();
    if (node == nullptr) return Wrong(absl::StrCat(where, " is not a [[node]]"));
    PANDO_RETURN_IF_ERROR(AddNodes(*node, where, cluster));
  }
  const double missing = cluster.nodes.size() > 1 ? -1 : 100;
  PANDO_ASSIGN_OR_RETURN(const double gbit, Number(table, "network_gbit", missing, "it"));
  cluster.network = gbit * 1e9 / 8;
  return cluster;
}

}  // namespace pando
