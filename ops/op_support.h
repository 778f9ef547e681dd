#pragma once

// What the ops' host side shares: scratch, launches, checks.

#include <cstdint>
#include <initializer_list>
#include <utility>

#include "engine/device.h"
#include "engine/error.h"
#include "engine/tape.h"
#include "engine/tensor.h"
#include "ops/kernel_tables.h"

namespace pando {

/// Scratch bytes on the device, given back to the allocator when the tensor goes. At least one
/// element, so that there is always a pointer.
inline Tensor Scratch(int64_t bytes, Device& device, const char* op) {
  return Tensor::Empty({bytes > 0 ? (bytes + 3) / 4 : 1}, DType::kI32, device, op);
}

/// Launches on the device's current stream.
template <typename Args>
void Run(Device& device, Kernel<Args> kernel, const Args& args) {
  device.current_stream().Launch(kernel, args);
}

/// The dtype in which statistics and losses of `t` are kept: f32, or f64 for f64.
inline DType StatsDType(const Tensor& t) {
  return t.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// data(), or null for an undefined tensor.
inline const void* DataOrNull(const Tensor& t) { return t.defined() ? t.data() : nullptr; }

/// The place of an input's gradient for kernels that sum into f32 (f64 for f64): the gradient
/// itself where it has that dtype (parameters) and a place of its own, else a tensor that Finish
/// adds to it.
class SumTarget {
 public:
  /// Nothing (data() is null) if the input needs no gradient.
  SumTarget(BackwardPass& pass, int input, Shape shape, const Tensor& like)
      : pass_(pass), input_(input) {
    if (!pass.Needs(input)) return;
    direct_ =
        !pass.SharesPlace(input) && (pass.IsParameter(input) || like.dtype() == StatsDType(like));
    if (direct_) {
      target_ = pass.Target(input);
    } else {
      target_.tensor =
          Tensor::Empty(std::move(shape), StatsDType(like), like.device(), "gradient sums");
    }
  }

  bool needed() const { return target_.tensor.defined(); }
  /// The sums, for code that launches kernels on tensors. Ask only if needed().
  Tensor& tensor() { return target_.tensor; }
  void* data() { return needed() ? target_.tensor.mutable_data() : nullptr; }
  bool accumulate() const { return target_.accumulate; }
  /// For kernels that can only add.
  void StartFromZero() {
    if (needed() && !target_.accumulate) target_.tensor.SetZero();
    target_.accumulate = true;
  }
  /// Call once the kernel has been launched.
  void Finish() {
    if (needed() && !direct_) pass_.Add(input_, std::move(target_.tensor));
  }

 private:
  BackwardPass& pass_;
  int input_;
  bool direct_ = false;
  GradientTarget target_;
};

/// Throws InvalidArgument naming `op` unless x is defined, floating, and all of `others` that are
/// defined have its dtype and device.
inline void CheckFloating(const char* op, const Tensor& x,
                          std::initializer_list<const Tensor*> others = {}) {
  Require(x.defined() && IsFloating(x.dtype()), op, ": takes floating tensors, not ", Describe(x));
  for (const Tensor* t : others) {
    if (!t->defined()) continue;
    Require(t->dtype() == x.dtype(), op, ": ", Describe(x), " beside ", Describe(*t),
            ": cast one of them");
    Require(&t->device() == &x.device(), op, ": one tensor is on ", x.device().name(),
            ", another on ", t->device().name());
  }
}

/// Throws InvalidArgument naming `op` unless `indices` (`what`: tokens, targets, lengths) has the
/// integer dtype `dtype` and lies on x's device.
inline void CheckIndices(const char* op, const char* what, const Tensor& indices, DType dtype,
                         const Tensor& x) {
  Require(indices.defined() && indices.dtype() == dtype, op, ": ", what, " must be ", Name(dtype),
          ", not ", Describe(indices));
  Require(&indices.device() == &x.device(), op, ": ", what, " are on ", indices.device().name(),
          ", the rest on ", x.device().name());
}

/// f(), whose InvalidArgument, from code that serves several operations, gets `op` put before it.
template <typename F>
auto Naming(const char* op, const F& f) {
  try {
    return f();
  } catch (const InvalidArgument& e) {
    throw InvalidArgument(absl::StrCat(op, ": ", e.what()));
  }
}

}  // namespace pando
