#include "ckpt/json.h"

#include <limits>
#include <set>

#include "absl/strings/str_cat.h"

namespace pando::json {
namespace {

constexpr int kMaxDepth = 8;

absl::Status Wrong(absl::string_view what, const char* key, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": \"", key, "\" is missing or not ", expected));
}

const Value* Find(const Value& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

bool AsInt(const Value& value, int64_t* out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  *out = value.get<int64_t>();
  return true;
}

absl::StatusOr<std::string> DumpIndented(const nlohmann::ordered_json& value, int indent,
                                         absl::string_view what) {
  try {
    return value.dump(indent);
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": can't be written as JSON: ", error.what()));
  }
}

// Notices what the library accepts in silence: keys given twice, and nesting so deep that a small
// text would take much memory.
class Watch {
 public:
  bool operator()(int depth, Value::parse_event_t event, const Value& value) {
    if (depth > kMaxDepth) problem_ = "is nested too deeply";
    if (event == Value::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == Value::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == Value::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) problem_ = absl::StrCat("has \"", key, "\" twice");
    }
    return depth <= kMaxDepth;  // false: not stored
  }

  const std::string& problem() const { return problem_; }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open, outermost first
  std::string problem_;
};

}  // namespace

absl::StatusOr<Value> Parse(absl::string_view text, absl::string_view what) {
  Watch watch;
  Value value;
  try {
    value = Value::parse(text.data(), text.data() + text.size(), std::ref(watch));
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": not JSON that can be read: ", error.what()));
  }
  if (!watch.problem().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", watch.problem()));
  }
  return value;
}

absl::StatusOr<int64_t> Int(const Value& object, const char* key, absl::string_view what) {
  const Value* field = Find(object, key);
  int64_t value;
  if (field == nullptr || !AsInt(*field, &value)) return Wrong(what, key, "a 64-bit integer");
  return value;
}

absl::StatusOr<std::string> String(const Value& object, const char* key, absl::string_view what) {
  const Value* field = Find(object, key);
  if (field == nullptr || !field->is_string()) return Wrong(what, key, "a string");
  return field->get<std::string>();
}

absl::StatusOr<std::vector<int64_t>> Ints(const Value& object, const char* key,
                                          absl::string_view what) {
  const Value* field = Find(object, key);
  if (field == nullptr || !field->is_array()) return Wrong(what, key, "a list of integers");
  std::vector<int64_t> values;
  for (const Value& element : *field) {
    int64_t value;
    if (!AsInt(element, &value)) return Wrong(what, key, "a list of 64-bit integers");
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<const Value*> Array(const Value& object, const char* key, absl::string_view what) {
  const Value* field = Find(object, key);
  if (field == nullptr || !field->is_array()) return Wrong(what, key, "a list");
  return field;
}

absl::StatusOr<const Value*> Object(const Value& object, const char* key, absl::string_view what) {
  const Value* field = Find(object, key);
  if (field == nullptr || !field->is_object()) return Wrong(what, key, "an object");
  return field;
}

absl::StatusOr<std::string> Dump(const nlohmann::ordered_json& value, absl::string_view what) {
  return DumpIndented(value, -1, what);
}

absl::StatusOr<std::string> DumpLines(const nlohmann::ordered_json& value, absl::string_view what) {
  return DumpIndented(value, 1, what);
}

}  // namespace pando::json
