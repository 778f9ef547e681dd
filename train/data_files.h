#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pando {

/// The files that a data path means, in order.
struct DataFiles {
  bool tokens = false;  ///< token files, else text
  std::vector<std::string> train;
  std::vector<std::string> validation;  ///< empty: a part of `train` is kept for it
};

/// Looks at the names under `path`, by the rules of DataOptions::path.
absl::StatusOr<DataFiles> FindDataFiles(const std::string& path);

}  // namespace pando
