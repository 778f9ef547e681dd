#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "engine/error.h"
#include "engine/tensor.h"
#include "engine/types.h"

namespace pando {

/// Elements that a collective reads and writes: never bytes and counts apart. Owns nothing.
class TypedSpan {
 public:
  TypedSpan() = default;
  TypedSpan(void* data, int64_t count, DType dtype) : data_(data), count_(count), dtype_(dtype) {}
  /// All elements of `t`, whose bytes must stay. Throws InvalidArgument if they are released.
  explicit TypedSpan(Tensor& t) : TypedSpan(t.mutable_data(), t.numel(), t.dtype()) {}
  template <typename T>
  explicit TypedSpan(absl::Span<T> host)
      : TypedSpan(host.data(), static_cast<int64_t>(host.size()), DTypeOf<T>::value) {}

  void* data() const { return data_; }
  int64_t count() const { return count_; }
  DType dtype() const { return dtype_; }
  int64_t bytes() const { return count_ * SizeOf(dtype_); }
  /// `count` elements from `first` on. Throws InvalidArgument if there are not so many.
  TypedSpan Part(int64_t first, int64_t count) const {
    Require(first >= 0 && count >= 0 && first + count <= count_, "elements ", first, " to ",
            first + count, " of a span of ", count_);
    return {static_cast<char*>(data_) + first * SizeOf(dtype_), count, dtype_};
  }

 private:
  void* data_ = nullptr;
  int64_t count_ = 0;
  DType dtype_ = DType::kF32;
};

}  // namespace pando
