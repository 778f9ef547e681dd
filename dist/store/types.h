#pragma once

// What etcd's v3 API is about (https://etcd.io/docs/v3.4/learning/api/), as plain data: shared by
// the client and the embedded server.

#include <cstdint>
#include <string>
#include <vector>

namespace pando {

struct KeyValue {
  std::string key;
  std::string value = {};
  int64_t create_revision = 0;  ///< of the store, at which the key came to be
  int64_t mod_revision = 0;     ///< at which it last changed
  int64_t version = 0;          ///< changes since it came to be; 0: there is no such key
  int64_t lease = 0;            ///< with which it goes; 0: none
};

/// Keys in [key, end); end empty: this key alone.
struct KeyRange {
  std::string key;
  std::string end;

  static KeyRange One(std::string key) { return {std::move(key), ""}; }
  /// All that start with `prefix`, which must not be empty.
  static KeyRange Prefix(const std::string& prefix);
  bool Contains(const std::string& k) const { return end.empty() ? k == key : key <= k && k < end; }
};

/// A condition of a transaction.
struct Compare {
  enum class Target { kVersion, kCreateRevision, kModRevision, kValue };
  enum class Relation { kEqual, kGreater, kLess, kNotEqual };
  std::string key;
  Target target = Target::kVersion;
  Relation relation = Relation::kEqual;
  int64_t number = 0;
  std::string value = {};

  /// That the key does not exist.
  static Compare Absent(std::string key) { return {std::move(key), Target::kVersion}; }
  static Compare Created(std::string key, int64_t revision) {
    return {std::move(key), Target::kCreateRevision, Relation::kEqual, revision};
  }
  static Compare Modified(std::string key, int64_t revision) {
    return {std::move(key), Target::kModRevision, Relation::kEqual, revision};
  }
};

struct Operation {
  enum class Kind { kPut, kDelete, kRange };
  Kind kind = Kind::kPut;
  KeyRange range;          ///< what to put (one key), delete or read
  std::string value = {};  ///< to put
  int64_t lease = 0;       ///< to put with

  static Operation Put(std::string key, std::string value, int64_t lease = 0) {
    return {Kind::kPut, KeyRange::One(std::move(key)), std::move(value), lease};
  }
  static Operation Delete(KeyRange range) { return {Kind::kDelete, std::move(range)}; }
  static Operation Range(KeyRange range) { return {Kind::kRange, std::move(range)}; }
};

struct OperationResult {
  std::vector<KeyValue> found;  ///< by kRange, in the order of keys
  int64_t deleted = 0;          ///< by kDelete
};

struct TxnResult {
  int64_t revision = 0;    ///< of the store behind it
  bool succeeded = false;  ///< all conditions held: the first list of operations was done
  std::vector<OperationResult> results;
};

struct StoreEvent {
  bool deleted = false;
  KeyValue kv;  ///< of a deletion the key and mod_revision alone
};

}  // namespace pando
