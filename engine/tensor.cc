#include "engine/tensor.h"

#include <utility>

#include "engine/parameter.h"
#include "engine/tape.h"

namespace pando {

Tensor Tensor::Empty(Shape shape, DType dtype, Device& device, std::string name) {
  int64_t bytes = 0;
  Require(!__builtin_mul_overflow(shape.numel(), SizeOf(dtype), &bytes), name, " ",
          shape.ToString(), " has more bytes than 64 bits count");
  auto storage = std::make_shared<Storage>(device, bytes, std::move(name), shape.ToString());
  return View(std::move(storage), 0, std::move(shape), dtype);
}

Tensor Tensor::Zeros(Shape shape, DType dtype, Device& device, std::string name) {
  Tensor t = Empty(std::move(shape), dtype, device, std::move(name));
  t.SetZero();
  return t;
}

Tensor Tensor::View(std::shared_ptr<Storage> storage, int64_t offset, Shape shape, DType dtype) {
  Require((offset + shape.numel()) * SizeOf(dtype) <= storage->bytes() && offset >= 0, "a view of ",
          storage->name(), " reaches beyond its ", storage->bytes(), " bytes: ", Name(dtype), " ",
          shape.ToString(), " at ", offset);
  Tensor t;
  t.storage_ = std::move(storage);
  t.offset_ = offset;
  t.shape_ = std::move(shape);
  t.dtype_ = dtype;
  return t;
}

Device& Tensor::device() const {
  Require(defined(), "an undefined tensor has no device");
  return storage_->device();
}

const std::string& Tensor::name() const {
  static const std::string undefined = "undefined tensor";
  return defined() ? storage_->name() : undefined;
}

const void* Tensor::data() const {
  Require(defined(), "an undefined tensor has no elements");
  return storage_->data() + offset_ * SizeOf(dtype_);
}

void* Tensor::mutable_data() {
  Require(defined(), "an undefined tensor has no elements");
  storage_->BumpVersion();
  return storage_->data() + offset_ * SizeOf(dtype_);
}

Tensor Tensor::Reshape(std::vector<int64_t> dims) const {
  int64_t known = 1;
  int64_t* unknown = nullptr;
  for (int64_t& d : dims) {
    if (d == -1) {
      Require(unknown == nullptr, "reshape: more than one size of -1");
      unknown = &d;
    } else {
      known *= d;
    }
  }
  if (unknown != nullptr && known > 0) *unknown = numel() / known;
  Tensor t = *this;
  t.shape_ = Shape(std::move(dims));
  Require(t.numel() == numel(), "reshape: ", shape_.ToString(), " does not fill ",
          t.shape_.ToString());
  return t;
}

Tensor Tensor::Narrow(int64_t start, int64_t length) const {
  Require(!requires_grad(), "narrow: ", name(), " requires a gradient; use ops::Slice");
  const int64_t rows = dim(0);
  Require(start >= 0 && length >= 0 && start + length <= rows, "narrow: rows ", start, " to ",
          start + length, " of ", Describe(*this));
  std::vector<int64_t> dims = shape_.dims();
  dims[0] = length;
  return View(storage_, offset_ + (rows == 0 ? 0 : start * (numel() / rows)),
              Shape(std::move(dims)), dtype_);
}

Tensor Tensor::Detach() const {
  Tensor t = *this;
  t.value_id_ = 0;
  t.parameter_ = nullptr;
  return t;
}

void Tensor::CheckType(DType want) const {
  Require(dtype_ == want, name(), " is ", Describe(*this), ", not ", Name(want));
}

double Tensor::Item() const {
  Require(numel() == 1, "item: ", Describe(*this), " has not just one element");
  switch (dtype_) {
    case DType::kF32:
      return ToHost<float>()[0];
    case DType::kF64:
      return ToHost<double>()[0];
    case DType::kBF16:
      return ToFloat(ToHost<BFloat16>()[0]);
    case DType::kF16:
      return ToFloat(ToHost<Float16>()[0]);
    case DType::kI32:
      return ToHost<int32_t>()[0];
    case DType::kI64:
      return static_cast<double>(ToHost<int64_t>()[0]);
  }
  return 0;
}

void Tensor::CopyFrom(const Tensor& from) {
  Require(shape_ == from.shape_ && dtype_ == from.dtype_, "copy: ", Describe(from), " into ",
          Describe(*this));
  const bool here = &device() == &from.device();
  Require(here || device().type() == DeviceType::kCpu || from.device().type() == DeviceType::kCpu,
          "copy: between two accelerators, go through the host");
  const CopyKind kind = here                                       ? CopyKind::kDeviceToDevice
                        : from.device().type() == DeviceType::kCpu ? CopyKind::kHostToDevice
                                                                   : CopyKind::kDeviceToHost;
  // The accelerator's stream does the copy; the CPU's work on the host end is done by then.
  Device& worker = kind == CopyKind::kDeviceToHost ? from.device() : device();
  if (!here) (kind == CopyKind::kDeviceToHost ? device() : from.device()).Synchronize();
  worker.current_stream().Copy(mutable_data(), from.data(), bytes(), kind);
  if (!here) worker.current_stream().Synchronize();
}

void Tensor::CheckTakes(const char* op, const Tensor& from) const {
  Require(numel() == from.numel() && &device() == &from.device() && IsFloating(dtype_) &&
              IsFloating(from.dtype_),
          op, ": ", Describe(from), " into ", Describe(*this));
}

void Tensor::CastFrom(const Tensor& from) {
  CheckTakes("cast", from);
  device().current_stream().Launch(device().vector_kernels().cast, CastArgs{.y = mutable_data(),
                                                                            .y_dtype = dtype_,
                                                                            .x = from.data(),
                                                                            .x_dtype = from.dtype_,
                                                                            .n = numel()});
}

void Tensor::AddFrom(const Tensor& from) {
  CheckTakes("add", from);
  Tensor term = from;
  // axpy adds 16-bit terms to f32 sums; any other two dtypes meet in that of the sum.
  const bool widens = dtype_ == DType::kF32 && SizeOf(from.dtype_) == 2;
  if (from.dtype_ != dtype_ && !widens) {
    term = Empty(from.shape(), dtype_, device(), "gradient");
    term.CastFrom(from);
  }
  device().current_stream().Launch(device().vector_kernels().axpy, AxpyArgs{.y = mutable_data(),
                                                                            .y_dtype = dtype_,
                                                                            .x = term.data(),
                                                                            .x_dtype = term.dtype_,
                                                                            .n = term.numel(),
                                                                            .a = 1.0,
                                                                            .factor = nullptr});
}

void Tensor::SetZero() { device().current_stream().SetBytes(mutable_data(), 0, bytes()); }

bool Tensor::requires_grad() const {
  return value_id_ != 0 || (parameter_ != nullptr && parameter_->requires_grad());
}

Tensor& Tensor::RequireGrad() {
  Require(IsFloating(dtype_), Describe(*this), " can't have a gradient");
  if (value_id_ == 0) value_id_ = NewValueId();
  return *this;
}

std::string Describe(const Tensor& t) {
  if (!t.defined()) return "undefined";
  return absl::StrCat(Name(t.dtype()), " ", t.shape().ToString());
}

}  // namespace pando
