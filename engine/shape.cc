#include "engine/shape.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "engine/error.h"

namespace pando {

Shape::Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {
  for (int64_t d : dims_) {
    Require(d >= 0, "shape ", ToString(), " has a negative size");
    Require(!__builtin_mul_overflow(numel_, d, &numel_), "shape ", ToString(),
            " has more elements than 64 bits count");
  }
}

int64_t Shape::dim(int64_t i) const {
  const int64_t at = i < 0 ? i + rank() : i;
  Require(at >= 0 && at < rank(), "dimension ", i, " of shape ", ToString(), " does not exist");
  return dims_[at];
}

std::string Shape::ToString() const { return absl::StrCat("[", absl::StrJoin(dims_, ", "), "]"); }

}  // namespace pando
