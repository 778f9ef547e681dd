#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/error.h"
#include "engine/shape.h"
#include "engine/storage.h"
#include "engine/types.h"

namespace pando {

class Parameter;

/// Identity of a value in the autograd tape. A reshaped tensor keeps it (same elements in the same
/// order), so reshaping costs nothing and is differentiable. 0: no gradient is wanted.
using ValueId = uint64_t;

/// A value-semantic handle on dense row-major elements. Copying a Tensor shares the bytes. Views
/// are contiguous: Reshape, and Narrow on the outermost dimension; anything else copies (ops/).
class Tensor {
 public:
  /// An undefined tensor: stands for an absent bias, an unwanted gradient.
  Tensor() = default;

  /// Uninitialised. `name` appears in errors and memory statistics. Throws OutOfMemory.
  static Tensor Empty(Shape shape, DType dtype, Device& device, std::string name = "tensor");
  static Tensor Zeros(Shape shape, DType dtype, Device& device, std::string name = "tensor");
  /// A copy of host values; waits until they are on the device. Throws InvalidArgument where the
  /// count does not fit the shape.
  template <typename T>
  static Tensor FromHost(std::span<const T> values, const Shape& shape, Device& device,
                         const std::string& name = "tensor");
  template <typename T>
  static Tensor FromHost(const std::vector<T>& values, const Shape& shape, Device& device,
                         const std::string& name = "tensor") {
    return FromHost(std::span<const T>(values), shape, device, name);
  }
  /// A view of `shape` elements of `storage`, `offset` elements of `dtype` from its start.
  static Tensor View(std::shared_ptr<Storage> storage, int64_t offset, Shape shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const { return shape_; }
  /// Size of dimension i; negative i counts from the end.
  int64_t dim(int64_t i) const { return shape_.dim(i); }
  int64_t rank() const { return shape_.rank(); }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * SizeOf(dtype_); }
  DType dtype() const { return dtype_; }
  Device& device() const;
  const std::string& name() const;

  /// The elements, on the device. Throws InvalidArgument if undefined, or if the bytes are
  /// released.
  const void* data() const;
  /// For writing: tells tensors saved for backward that their bytes change.
  void* mutable_data();
  /// The same, checked against the element type.
  template <typename T>
  const T* data() const;
  template <typename T>
  T* mutable_data();

  /// The same elements in another shape; one size may be -1 (inferred). Keeps the gradient.
  Tensor Reshape(std::vector<int64_t> dims) const;
  /// Rows [start, start + length) of the outermost dimension, as a view without gradient
  /// (ops::Slice has one); throws InvalidArgument on a tensor that requires a gradient.
  Tensor Narrow(int64_t start, int64_t length) const;
  /// The same bytes, without gradient.
  Tensor Detach() const;

  /// Copies the elements to the host and waits for them. T must be the element type.
  template <typename T>
  std::vector<T> ToHost() const;
  /// The same into memory of the caller's; throws InvalidArgument unless it has numel() places.
  template <typename T>
  void ToHost(std::span<T> values) const;
  /// The only element, as a double, of a tensor of any dtype.
  double Item() const;

  /// Queues a copy of `from` (same shape and dtype, any device) into this tensor.
  void CopyFrom(const Tensor& from);
  /// Queues a conversion of `from`, rounding to nearest, ties to even, into this tensor: as many
  /// elements in any shape, on the same device, both of floating dtypes and not overlapping.
  void CastFrom(const Tensor& from);
  /// Queues an addition of `from` to this tensor: as many elements in any shape, on the same
  /// device, both of floating dtypes.
  void AddFrom(const Tensor& from);
  /// Queues zeroing.
  void SetZero();

  /// Whether a gradient is wanted for this value.
  bool requires_grad() const;
  /// Makes this handle a leaf for which a gradient is wanted (Backward leaves it in GradientOf).
  Tensor& RequireGrad();
  ValueId value_id() const { return value_id_; }
  void set_value_id(ValueId id) { value_id_ = id; }
  /// The parameter whose value this is, or null.
  Parameter* parameter() const { return parameter_; }
  void set_parameter(Parameter* p) { parameter_ = p; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  /// Elements from the start of the storage.
  int64_t offset() const { return offset_; }

 private:
  void CheckType(DType want) const;
  void CheckTakes(const char* op, const Tensor& from) const;

  std::shared_ptr<Storage> storage_;
  Shape shape_{0};
  DType dtype_ = DType::kF32;
  int64_t offset_ = 0;
  ValueId value_id_ = 0;
  Parameter* parameter_ = nullptr;
};

/// "f32 [2, 3]", or "undefined": for error messages.
std::string Describe(const Tensor& t);

template <typename T>
const T* Tensor::data() const {
  CheckType(DTypeOf<T>::value);
  return static_cast<const T*>(data());
}

template <typename T>
T* Tensor::mutable_data() {
  CheckType(DTypeOf<T>::value);
  return static_cast<T*>(mutable_data());
}

template <typename T>
Tensor Tensor::FromHost(std::span<const T> values, const Shape& shape, Device& device,
                        const std::string& name) {
  Tensor t = Empty(shape, DTypeOf<T>::value, device, name);
  Require(static_cast<int64_t>(values.size()) == t.numel(), "FromHost: ", values.size(),
          " values for shape ", t.shape().ToString());
  device.current_stream().Copy(t.mutable_data(), values.data(), t.bytes(), CopyKind::kHostToDevice);
  device.current_stream().Synchronize();
  return t;
}

template <typename T>
std::vector<T> Tensor::ToHost() const {
  std::vector<T> values(numel());
  ToHost(std::span<T>(values));
  return values;
}

template <typename T>
void Tensor::ToHost(std::span<T> values) const {
  CheckType(DTypeOf<T>::value);
  Require(static_cast<int64_t>(values.size()) == numel(), "ToHost: room for ", values.size(),
          " elements of ", Describe(*this));
  device().current_stream().Copy(values.data(), data(), bytes(), CopyKind::kDeviceToHost);
  device().current_stream().Synchronize();
}

}  // namespace pando
