#include "ops/shape_ops.h"

#include <numeric>
#include <utility>

#include "ops/op_support.h"
#include "ops/strided.h"

namespace pando {
namespace {

char* At(void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * SizeOf(dtype);
}

void Copy(DType dtype, void* y, const void* x, const StridedIndex<2>& index, Device& device) {
  Run(device, copy_kernels.For(device).copy,
      CopyArgs{.dtype = dtype, .y = y, .x = x, .index = Collapsed(index)});
}

Tensor PermuteForward(const Tensor& x, const std::vector<int64_t>& permutation) {
  const StridedIndex<2> index =
      Naming("permute", [&] { return PermuteIndex(x.shape().dims(), permutation); });
  std::vector<int64_t> dims;
  dims.reserve(permutation.size());
  for (int64_t p : permutation) dims.push_back(x.dim(p));
  Tensor y = Tensor::Empty(Shape(std::move(dims)), x.dtype(), x.device(), "permute");
  Copy(x.dtype(), y.mutable_data(), x.data(), index, x.device());
  return y;
}

Tensor SliceForward(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  const SliceIndex slice =
      Naming("slice", [&] { return MakeSliceIndex(x.shape().dims(), dim, start, length); });
  std::vector<int64_t> dims = x.shape().dims();
  dims[dim] = length;
  Tensor y = Tensor::Empty(Shape(std::move(dims)), x.dtype(), x.device(), "slice");
  const char* from = static_cast<const char*>(x.data()) + slice.offset * SizeOf(x.dtype());
  Copy(x.dtype(), y.mutable_data(), from, slice.index, x.device());
  return y;
}

void CastInto(const Tensor& x, Tensor& y) {
  if (IsFloating(x.dtype()) && IsFloating(y.dtype())) {
    y.CastFrom(x);
    return;
  }
  Run(x.device(), copy_kernels.For(x.device()).integer_cast,
      IntegerCastArgs{.y = y.mutable_data(),
                      .y_dtype = y.dtype(),
                      .x = x.data(),
                      .x_dtype = x.dtype(),
                      .n = x.numel()});
}

}  // namespace

Tensor Permute(const Tensor& x, const std::vector<int64_t>& permutation) {
  Require(x.defined(), "permute: x is undefined");
  Tensor y = PermuteForward(x, permutation);
  if (!Recording({&x})) return y;
  std::vector<int64_t> inverse(permutation.size());
  for (size_t d = 0; d < permutation.size(); ++d) inverse[permutation[d]] = static_cast<int64_t>(d);
  Record("permute", {&x}, {&y},
         [inverse](BackwardPass& pass) { pass.Add(0, PermuteForward(pass.Gradient(), inverse)); });
  return y;
}

Tensor Transpose(const Tensor& x) {
  Require(x.defined() && x.rank() >= 2, "transpose: ", Describe(x),
          " has fewer than two dimensions");
  std::vector<int64_t> permutation(static_cast<size_t>(x.rank()));
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
  return Permute(x, permutation);
}

Tensor Slice(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  Require(x.defined(), "slice: x is undefined");
  if (dim < 0) dim += x.rank();
  Tensor y = SliceForward(x, dim, start, length);
  if (!Recording({&x})) return y;
  const auto backward = [shape = x.shape(), dim, start, length](BackwardPass& pass) {
    const Tensor& dy = pass.Gradient();
    const SliceIndex slice = MakeSliceIndex(shape.dims(), dim, start, length);
    GradientTarget dx = pass.Target(0);
    if (!dx.accumulate) dx.tensor.SetZero();
    Run(dy.device(), copy_kernels.For(dy.device()).add_into,
        AddIntoArgs{.y = At(dx.tensor.mutable_data(), slice.offset, dx.tensor.dtype()),
                    .y_dtype = dx.tensor.dtype(),
                    .x = dy.data(),
                    .x_dtype = dy.dtype(),
                    .index = Collapsed(Swapped(slice.index))});
  };
  Record("slice", {&x}, {&y}, backward);
  return y;
}

Tensor Concat(const std::vector<Tensor>& parts, int64_t dim) {
  Require(!parts.empty(), "concat: nothing to concatenate");
  const Tensor& first = parts[0];
  Require(first.defined(), "concat: the first part is undefined");
  if (dim < 0) dim += first.rank();
  std::vector<int64_t> dims = first.shape().dims();
  Require(dim >= 0 && dim < first.rank(), "concat: ", Describe(first), " has no dimension ", dim);
  dims[dim] = 0;
  std::vector<int64_t> starts;
  for (const Tensor& part : parts) {
    std::vector<int64_t> like_first = part.shape().dims();
    const bool comparable = part.defined() && &part.device() == &first.device() &&
                            part.rank() == first.rank() && part.dtype() == first.dtype();
    if (comparable) like_first[dim] = first.dim(dim);
    Require(comparable && like_first == first.shape().dims(), "concat: ", Describe(part),
            " beside ", Describe(first));
    starts.push_back(dims[dim]);
    dims[dim] += part.dim(dim);
  }
  Tensor y = Tensor::Empty(Shape(dims), first.dtype(), first.device(), "concat");
  for (size_t i = 0; i < parts.size(); ++i) {
    const SliceIndex slice = MakeSliceIndex(dims, dim, starts[i], parts[i].dim(dim));
    Copy(y.dtype(), At(y.mutable_data(), slice.offset, y.dtype()), parts[i].data(),
         Swapped(slice.index), y.device());
  }
  if (!Recording(parts)) return y;
  std::vector<int64_t> lengths;
  lengths.reserve(parts.size());
  for (const Tensor& part : parts) lengths.push_back(part.dim(dim));
  Record("concat", parts, {&y}, [dim, starts, lengths](BackwardPass& pass) {
    for (size_t i = 0; i < starts.size(); ++i) {
      const int input = static_cast<int>(i);
      if (pass.Needs(input)) {
        pass.Add(input, SliceForward(pass.Gradient(), dim, starts[i], lengths[i]));
      }
    }
  });
  return y;
}

Tensor Cast(const Tensor& x, DType dtype) {
  Require(x.defined(), "cast: x is undefined");
  if (x.dtype() == dtype) return x;
  Tensor y = Tensor::Empty(x.shape(), dtype, x.device(), "cast");
  CastInto(x, y);
  if (!IsFloating(dtype) || !Recording({&x})) return y;
  // Add casts, straight into a parameter's f32.
  Record("cast", {&x}, {&y}, [](BackwardPass& pass) { pass.Add(0, pass.Gradient()); });
  return y;
}

}  // namespace pando
