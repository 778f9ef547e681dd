#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace pando {

/// Sizes of a dense row-major tensor, outermost first. Rank 0 is a scalar with one element.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::vector<int64_t>(dims)) {}
  /// Throws InvalidArgument for a negative size or a product beyond 64 bits.
  explicit Shape(std::vector<int64_t> dims);

  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  /// Size of dimension `i`; negative `i` counts from the end. Throws InvalidArgument out of range.
  int64_t dim(int64_t i) const;
  int64_t numel() const { return numel_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  /// "[2, 3, 4]".
  std::string ToString() const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

 private:
  std::vector<int64_t> dims_;
  int64_t numel_ = 1;
};

}  // namespace pando
