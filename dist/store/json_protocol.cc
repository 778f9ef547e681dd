#include "dist/store/json_protocol.h"

#include <stdexcept>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"

namespace pando {
namespace {

constexpr const char* kTargets[] = {"VERSION", "CREATE", "MOD", "VALUE"};
constexpr const char* kTargetFields[] = {"version", "create_revision", "mod_revision", "value"};
constexpr const char* kRelations[] = {"EQUAL", "GREATER", "LESS", "NOT_EQUAL"};

/// The place of the field's name in `names`; the first where it is absent.
template <size_t n>
size_t NameField(const Json& object, const char* field, const char* const (&names)[n]) {
  const std::string name = object.value(field, names[0]);
  for (size_t i = 0; i < n; ++i) {
    if (name == names[i]) return i;
  }
  throw std::invalid_argument("unknown " + std::string(field) + " " + name);
}

void Set(Json& json, const char* field, const std::string& bytes) {
  if (!bytes.empty()) json[field] = ToBytes(bytes);
}

void Set(Json& json, const char* field, int64_t n) {
  if (n != 0) json[field] = ToInt(n);
}

}  // namespace

Json ToBytes(const std::string& bytes) { return absl::Base64Escape(bytes); }

Json ToInt(int64_t n) { return std::to_string(n); }

std::string BytesField(const Json& object, const char* field) {
  const std::string text = object.value(field, "");
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes)) {
    throw std::invalid_argument(std::string(field) + " is not base64");
  }
  return bytes;
}

int64_t IntField(const Json& object, const char* field) {
  const auto it = object.find(field);
  if (it == object.end()) return 0;
  if (it->is_number_integer()) return it->get<int64_t>();
  int64_t n = 0;
  if (!absl::SimpleAtoi(it->get<std::string>(), &n)) {
    throw std::invalid_argument(std::string(field) + " is not a number");
  }
  return n;
}

Json ToJson(const KeyValue& kv) {
  Json json = Json::object();
  Set(json, "key", kv.key);
  Set(json, "value", kv.value);
  Set(json, "create_revision", kv.create_revision);
  Set(json, "mod_revision", kv.mod_revision);
  Set(json, "version", kv.version);
  Set(json, "lease", kv.lease);
  return json;
}

KeyValue KeyValueFrom(const Json& json) {
  return {BytesField(json, "key"),           BytesField(json, "value"),
          IntField(json, "create_revision"), IntField(json, "mod_revision"),
          IntField(json, "version"),         IntField(json, "lease")};
}

Json ToJson(const KeyRange& range) {
  Json json = Json::object();
  Set(json, "key", range.key);
  Set(json, "range_end", range.end);
  return json;
}

KeyRange KeyRangeFrom(const Json& json) {
  KeyRange range{BytesField(json, "key"), BytesField(json, "range_end")};
  if (range.key.empty()) throw std::invalid_argument("the key is empty");
  return range;
}

Json ToJson(const Compare& c) {
  const auto target = static_cast<size_t>(c.target);
  Json json = {{"key", ToBytes(c.key)},
               {"target", kTargets[target]},
               {"result", kRelations[static_cast<size_t>(c.relation)]}};
  json[kTargetFields[target]] =
      c.target == Compare::Target::kValue ? ToBytes(c.value) : ToInt(c.number);
  return json;
}

Compare CompareFrom(const Json& json) {
  Compare c;
  const size_t target = NameField(json, "target", kTargets);
  c.key = BytesField(json, "key");
  c.target = static_cast<Compare::Target>(target);
  c.relation = static_cast<Compare::Relation>(NameField(json, "result", kRelations));
  if (c.target == Compare::Target::kValue) {
    c.value = BytesField(json, "value");
  } else {
    c.number = IntField(json, kTargetFields[target]);
  }
  return c;
}

Json ToJson(const Operation& o) {
  Json body = ToJson(o.range);
  if (o.kind == Operation::Kind::kRange) return {{"request_range", body}};
  if (o.kind == Operation::Kind::kDelete) return {{"request_delete_range", body}};
  Set(body, "value", o.value);
  Set(body, "lease", o.lease);
  return {{"request_put", body}};
}

Operation OperationFrom(const Json& json) {
  if (const auto put = json.find("request_put"); put != json.end()) {
    return Operation::Put(KeyRangeFrom(*put).key, BytesField(*put, "value"),
                          IntField(*put, "lease"));
  }
  if (const auto range = json.find("request_range"); range != json.end()) {
    return Operation::Range(KeyRangeFrom(*range));
  }
  return Operation::Delete(KeyRangeFrom(json.at("request_delete_range")));
}

Json ToJson(const StoreEvent& event) {
  Json json = {{"kv", ToJson(event.kv)}};
  if (event.deleted) json["type"] = "DELETE";
  return json;
}

StoreEvent StoreEventFrom(const Json& json) {
  return {json.value("type", "PUT") == "DELETE", KeyValueFrom(json.at("kv"))};
}

Json ToJson(const OperationResult& result, Operation::Kind kind) {
  if (kind == Operation::Kind::kPut) return {{"response_put", Json::object()}};
  if (kind == Operation::Kind::kDelete) {
    Json body = Json::object();
    Set(body, "deleted", result.deleted);
    return {{"response_delete_range", body}};
  }
  Json body = Json::object();
  for (const KeyValue& kv : result.found) body["kvs"].push_back(ToJson(kv));
  Set(body, "count", static_cast<int64_t>(result.found.size()));
  return {{"response_range", body}};
}

OperationResult OperationResultFrom(const Json& json) {
  OperationResult result;
  if (const auto range = json.find("response_range"); range != json.end()) {
    for (const Json& kv : range->value("kvs", Json::array())) {
      result.found.push_back(KeyValueFrom(kv));
    }
  } else if (const auto gone = json.find("response_delete_range"); gone != json.end()) {
    result.deleted = IntField(*gone, "deleted");
  }
  return result;
}

}  // namespace pando
