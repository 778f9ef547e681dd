#pragma once

// The JSON that etcd's gateway speaks: bytes in base64, 64-bit integers as strings, and fields left
// out where they are 0, false or empty.

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "dist/store/types.h"

namespace pando {

using Json = nlohmann::json;

/// A field's bytes, number or truth; empty, 0 or false where it is absent. Throw Json::exception,
/// or std::invalid_argument, for what isn't one.
std::string BytesField(const Json& object, const char* field);
int64_t IntField(const Json& object, const char* field);
Json ToBytes(const std::string& bytes);
Json ToInt(int64_t n);

Json ToJson(const KeyValue& kv);
KeyValue KeyValueFrom(const Json& json);
Json ToJson(const KeyRange& range);
KeyRange KeyRangeFrom(const Json& json);
Json ToJson(const Compare& compare);
Compare CompareFrom(const Json& json);
Json ToJson(const Operation& operation);
Operation OperationFrom(const Json& json);
Json ToJson(const StoreEvent& event);
StoreEvent StoreEventFrom(const Json& json);
/// What a transaction's i-th operation came to, in the form of its kind.
Json ToJson(const OperationResult& result, Operation::Kind kind);
OperationResult OperationResultFrom(const Json& json);

}  // namespace pando
