#pragma once

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace pando {

/// Whether PANDO_FEWER_CASES is set in the environment, as it is under ThreadSanitizer, which is
/// slow and looks for races, not for wrong numbers.
inline bool FewerCases() { return std::getenv("PANDO_FEWER_CASES") != nullptr; }

/// The sizes to test: `all`, or a `few` of them.
inline std::vector<int64_t> Cases(std::vector<int64_t> all, std::vector<int64_t> few) {
  return FewerCases() ? std::move(few) : std::move(all);
}

}  // namespace pando
