#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace pando {

/// What ranks need of a store in order to find each other. Thread-safe. Keys and values are bytes.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual absl::Status Put(absl::string_view key, absl::string_view value) = 0;
  /// The value, as soon as there is one; DeadlineExceeded, naming the key, if there is none by
  /// then.
  virtual absl::StatusOr<std::string> Await(absl::string_view key, absl::Time deadline) = 0;
};

}  // namespace pando
