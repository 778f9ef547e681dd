#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// For .cc files of this folder only: public headers stay free of the JSON library.

namespace pando::json {

using Value = nlohmann::json;

/// Parses a whole text. An object that has one key twice, nesting deeper than 8, invalid UTF-8 or
/// anything after the value is an error: InvalidArgument, starting with `what`.
absl::StatusOr<Value> Parse(absl::string_view text, absl::string_view what);

/// The field `key` of `object` as a given type; InvalidArgument, starting with `what`, if it is
/// missing or anything else. Integers must be whole, written without fraction, and fit.
absl::StatusOr<int64_t> Int(const Value& object, const char* key, absl::string_view what);
absl::StatusOr<std::string> String(const Value& object, const char* key, absl::string_view what);
absl::StatusOr<std::vector<int64_t>> Ints(const Value& object, const char* key,
                                          absl::string_view what);

/// The field `key`, which must be an array or an object.
absl::StatusOr<const Value*> Array(const Value& object, const char* key, absl::string_view what);
absl::StatusOr<const Value*> Object(const Value& object, const char* key, absl::string_view what);

/// `value` on one line, or indented on many; InvalidArgument, starting with `what`, if a string in
/// it is not UTF-8.
absl::StatusOr<std::string> Dump(const nlohmann::ordered_json& value, absl::string_view what);
absl::StatusOr<std::string> DumpLines(const nlohmann::ordered_json& value, absl::string_view what);

}  // namespace pando::json
