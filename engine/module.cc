#include "engine/module.h"

#include "engine/error.h"

namespace pando {

Scope ParameterRegistry::Root() { return Scope(this, ""); }

Parameter* ParameterRegistry::Find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

int64_t ParameterRegistry::numel() const {
  int64_t sum = 0;
  for (const Parameter* p : parameters_) sum += p->shape().numel();
  return sum;
}

void ParameterRegistry::Add(Parameter* parameter) {
  Require(by_name_.emplace(parameter->name(), parameter).second, "parameter ", parameter->name(),
          " is declared twice: give the second module another name in its scope");
  parameters_.push_back(parameter);
}

namespace {
Shape WithMoreRows(const Shape& shape, int64_t rows) {
  std::vector<int64_t> dims = shape.dims();
  if (rows > 0) dims.at(0) += rows;
  return Shape(std::move(dims));
}
}  // namespace

Parameter::Parameter(const Scope& scope, const std::string& name, Shape shape,
                     Initializer initializer, WeightDecay decay, int64_t padding_rows)
    : name_((scope / name).path()),
      shape_(std::move(shape)),
      padded_shape_(WithMoreRows(shape_, padding_rows)),
      initializer_(initializer),
      decay_(decay) {
  scope.registry().Add(this);
}

const Tensor& Parameter::value() const {
  Require(value_.defined(), "parameter ", name_, " has no place yet: declare, then place (see ",
          "FlatParameters)");
  return value_;
}

const Tensor& Parameter::grad() const {
  Require(grad_.defined(), "the gradient of ", name_, " has no place yet (see FlatParameters)");
  return grad_;
}

void Parameter::Place(Tensor value) {
  Require(value.shape() == padded_shape_, "parameter ", name_, " is ", padded_shape_.ToString(),
          ", its place ", Describe(value));
  value_ = std::move(value);
  value_.set_parameter(this);
}

void Parameter::PlaceGrad(Tensor grad) {
  Require(grad.shape() == padded_shape_, "parameter ", name_, " is ", padded_shape_.ToString(),
          ", the place of its gradient ", Describe(grad));
  grad_ = std::move(grad);
  has_grad_ = false;
}

}  // namespace pando
