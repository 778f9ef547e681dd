#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/initializer.h"
#include "engine/shape.h"
#include "engine/tensor.h"

namespace pando {

class Scope;

/// Whether AdamW's decoupled weight decay applies.
enum class WeightDecay { kYes, kNo };

/// A trainable tensor of a module: declared by the module, placed later in a flat buffer by whoever
/// runs the training (FlatParameters, ZeRO). Immovable: tapes and optimizers hold its address.
class Parameter {
 public:
  /// Declares `name` within `scope`, whose registry then lists it. `padding_rows` rows follow the
  /// outermost dimension in memory, always zero, absent from files and counts: a vocabulary padded
  /// for speed. Throws InvalidArgument for a name declared twice.
  Parameter(const Scope& scope, const std::string& name, Shape shape, Initializer initializer,
            WeightDecay decay, int64_t padding_rows = 0);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  /// Full name, as in "h.0.attn.c_attn.weight".
  const std::string& name() const { return name_; }
  /// As the model means it and files hold it.
  const Shape& shape() const { return shape_; }
  /// As it lies in memory, padding rows included: the shape of value() and grad().
  const Shape& padded_shape() const { return padded_shape_; }
  const Initializer& initializer() const { return initializer_; }
  bool decays() const { return decay_ == WeightDecay::kYes; }

  /// False for a frozen parameter: it gets no gradient and the optimizer leaves it alone.
  bool requires_grad() const { return requires_grad_; }
  void set_requires_grad(bool on) { requires_grad_ = on; }

  /// The value, in the dtype of computation. Throws InvalidArgument before it is placed.
  const Tensor& value() const;
  /// So that ops take parameters as they take tensors.
  operator const Tensor&() const { return value(); }  // NOLINT: implicit on purpose

  /// The gradient's place: f32 (f64 for f64 parameters). Throws InvalidArgument before it is
  /// placed.
  const Tensor& grad() const;
  /// Whether the gradient holds a sum since the last ClearGrad; if not, its bytes mean nothing.
  bool has_grad() const { return has_grad_; }
  void ClearGrad() { has_grad_ = false; }
  /// Marks the gradient as written; returns whether it was before, that is, whether to add to it.
  bool StartGrad() { return std::exchange(has_grad_, true); }

  /// Gives value and gradient their places. A place of another shape is a mistake and throws.
  void Place(Tensor value);
  void PlaceGrad(Tensor grad);

  /// Counts changes of the value by an optimizer or a load (gathering the same value is none).
  int64_t version() const { return version_; }
  void BumpVersion() { ++version_; }

 private:
  std::string name_;
  Shape shape_;
  Shape padded_shape_;
  Initializer initializer_;
  WeightDecay decay_;
  bool requires_grad_ = true;
  bool has_grad_ = false;
  int64_t version_ = 0;
  Tensor value_;
  Tensor grad_;
};

}  // namespace pando
