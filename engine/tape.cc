#include "engine/tape.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "engine/error.h"

namespace pando {
namespace {

void RequireUnchanged(const Parameter& p, int64_t version) {
  Require(p.version() == version, "parameter ", p.name(),
          " was changed between the forward that used it and its backward");
}

/// Remembers the unit that is running, and the one around it.
class UnitGuard {
 public:
  UnitGuard(const Unit*& current, const Unit* unit)
      : current_(current), before_(std::exchange(current, unit)) {}
  ~UnitGuard() { current_ = before_; }
  UnitGuard(const UnitGuard&) = delete;
  UnitGuard& operator=(const UnitGuard&) = delete;

 private:
  const Unit*& current_;
  const Unit* before_;
};

Tensor CopyOf(const Tensor& t) {
  Tensor copy = Tensor::Empty(t.shape(), t.dtype(), t.device(), t.name());
  copy.CopyFrom(t);
  return copy;
}

}  // namespace

ValueId NewValueId() {
  static std::atomic<ValueId> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

CheckFiniteGuard::CheckFiniteGuard() { Tape::Current().check_finite_ = true; }
CheckFiniteGuard::~CheckFiniteGuard() { Tape::Current().check_finite_ = false; }

NoGrad::NoGrad() { ++Tape::Current().no_grad_; }
NoGrad::~NoGrad() { --Tape::Current().no_grad_; }

Saved::Saved(const Tensor& t) : parameter_(t.parameter()), shape_(t.shape()) {
  if (parameter_ != nullptr) {
    version_ = parameter_->version();
  } else if (t.defined()) {
    tensor_ = t.Detach();
    version_ = t.storage()->version();
  }
}

Tensor Saved::Get() const {
  if (parameter_ != nullptr) {
    RequireUnchanged(*parameter_, version_);
    return parameter_->value().Reshape(shape_.dims()).Detach();
  }
  if (!tensor_.defined()) return tensor_;
  Require(tensor_.storage()->version() == version_, tensor_.name(), " ", Describe(tensor_),
          " was overwritten between the forward that saved it and its backward");
  return tensor_;
}

bool BackwardPass::GradientIsOne(int i) const {
  const auto* node = static_cast<const Tape::Node*>(node_);
  return node->outputs.at(static_cast<size_t>(i)) == tape_.loss_with_gradient_one_;
}

bool BackwardPass::Needs(int i) const {
  const Tape::Input& in = static_cast<const Tape::Node*>(node_)->inputs.at(static_cast<size_t>(i));
  return in.id != 0 || in.parameter != nullptr;
}

bool BackwardPass::IsParameter(int i) const {
  return static_cast<const Tape::Node*>(node_)->inputs.at(static_cast<size_t>(i)).parameter !=
         nullptr;
}

bool BackwardPass::SharesPlace(int i) const {
  const auto& inputs = static_cast<const Tape::Node*>(node_)->inputs;
  const Tape::Input& in = inputs.at(static_cast<size_t>(i));
  return std::count_if(inputs.begin(), inputs.end(), [&in](const Tape::Input& other) {
           return other.id == in.id && other.parameter == in.parameter;
         }) > 1;
}

GradientTarget BackwardPass::Target(int i) {
  const Tape::Input& in = static_cast<const Tape::Node*>(node_)->inputs.at(static_cast<size_t>(i));
  if (in.parameter != nullptr) {
    const bool accumulate = in.parameter->StartGrad();
    return {in.parameter->grad().Reshape(in.shape.dims()), accumulate};
  }
  if (in.id == tape_.loss_with_gradient_one_) tape_.loss_with_gradient_one_ = 0;
  const auto it = tape_.gradients_.find(in.id);
  if (it == tape_.gradients_.end()) {
    Tensor fresh = Tensor::Empty(in.shape, in.dtype, *in.device, "gradient");
    tape_.gradients_.emplace(in.id, fresh);
    return {std::move(fresh), false};
  }
  // The sum so far may be shared with another value's gradient (both inputs of an Add): then it is
  // copied before it is added to.
  if (it->second.storage().use_count() > 1) it->second = CopyOf(it->second);
  return {it->second.Reshape(in.shape.dims()), true};
}

void BackwardPass::Add(int i, Tensor gradient) {
  if (!Needs(i)) return;
  const Tape::Input& in = static_cast<const Tape::Node*>(node_)->inputs.at(static_cast<size_t>(i));
  Require(gradient.numel() == in.shape.numel(), static_cast<const Tape::Node*>(node_)->op,
          ": gradient ", Describe(gradient), " for an input of shape ", in.shape.ToString());
  if (in.parameter == nullptr && gradient.dtype() == in.dtype) {
    tape_.AddGradient(in.id, std::move(gradient));
    return;
  }
  GradientTarget target = Target(i);
  if (target.accumulate) {
    target.tensor.AddFrom(gradient);
  } else {
    target.tensor.CastFrom(gradient);
  }
}

void Tape::AddGradient(ValueId id, Tensor gradient) {
  if (id == loss_with_gradient_one_) loss_with_gradient_one_ = 0;  // other operations used it too
  const auto [it, fresh] = gradients_.try_emplace(id, gradient);
  if (fresh) return;
  if (it->second.storage().use_count() > 1) it->second = CopyOf(it->second);
  it->second.AddFrom(gradient);
}

Tape& Tape::Current() {
  thread_local Tape tape;
  return tape;
}

void Tape::Clear() {
  nodes_.clear();
  gradients_.clear();
  uses_.clear();
}

class Tape::ModeGuard {
 public:
  ModeGuard(Tape& tape, Mode mode)
      : tape_(tape), before_(std::exchange(tape.mode_, mode)), no_grad_before_(tape.no_grad_) {
    if (mode == Mode::kReplay) tape.no_grad_ = 0;
  }
  ~ModeGuard() {
    tape_.mode_ = before_;
    tape_.no_grad_ = no_grad_before_;
  }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  Tape& tape_;
  Mode before_;
  int no_grad_before_;
};

bool Tape::Wants(const Tensor& t) { return t.defined() && t.requires_grad(); }

bool Recording(std::initializer_list<const Tensor*> inputs) {
  if (Tape::Current().no_grad_ > 0) return false;
  for (const Tensor* t : inputs) {
    if (Tape::Wants(*t)) return true;
  }
  return false;
}

bool Recording(const std::vector<Tensor>& inputs) {
  if (Tape::Current().no_grad_ > 0) return false;
  for (const Tensor& t : inputs) {
    if (Tape::Wants(t)) return true;
  }
  return false;
}

Tape::Input Tape::InputOf(const Tensor& t) {
  if (!Wants(t)) return {0, nullptr, Shape({0}), DType::kF32, nullptr};
  return {t.parameter() == nullptr ? t.value_id() : 0, t.parameter(), t.shape(), t.dtype(),
          &t.device()};
}

void Record(const char* op, std::initializer_list<const Tensor*> inputs,
            std::initializer_list<Tensor*> outputs, BackwardFunction backward) {
  std::vector<Tape::Input> list;
  list.reserve(inputs.size());
  for (const Tensor* t : inputs) list.push_back(Tape::InputOf(*t));
  Tape::Current().Append(op, std::move(list), outputs, std::move(backward));
}

void Record(const char* op, const std::vector<Tensor>& inputs,
            std::initializer_list<Tensor*> outputs, BackwardFunction backward) {
  std::vector<Tape::Input> list;
  list.reserve(inputs.size());
  for (const Tensor& t : inputs) list.push_back(Tape::InputOf(t));
  Tape::Current().Append(op, std::move(list), outputs, std::move(backward));
}

void Tape::Append(const char* op, std::vector<Input> inputs, std::initializer_list<Tensor*> outputs,
                  BackwardFunction backward) {
  if (mode_ != Mode::kReplay) {
    for (const Input& in : inputs) {
      if (in.parameter != nullptr) ++uses_[in.parameter];
    }
  }
  if (check_finite_) {
    for (const Tensor* t : outputs) CheckFinite(*t, "the output", op, unit_);
  }
  if (mode_ == Mode::kCountOnly) return;
  Node node{op, unit_, std::move(inputs), {}, {}, std::move(backward)};
  for (Tensor* t : outputs) {
    t->set_value_id(NewValueId());
    node.outputs.push_back(t->value_id());
    node.output_shapes.push_back(t->shape());
  }
  nodes_.push_back(std::move(node));
}

void Tape::Notify(const Unit& unit, void (TapeObserver::*hook)(const Unit&)) {
  if (observer_ != nullptr) (observer_->*hook)(unit);
}

void Tape::AppendMarker(const Unit& unit, void (TapeObserver::*hook)(const Unit&)) {
  nodes_.push_back(Node{"unit",
                        &unit,
                        {},
                        {},
                        {},
                        [this, &unit, hook](BackwardPass&) { Notify(unit, hook); },
                        /*always=*/true});
}

std::vector<Tensor> RunUnit(const Unit& unit, const UnitFunction& forward,
                            const std::vector<Tensor>& inputs) {
  Tape& tape = Tape::Current();
  if (tape.mode_ != Tape::Mode::kRecord) return forward(inputs);  // nested in a recomputed unit
  const bool record = tape.no_grad_ == 0;
  const UnitGuard within(tape.unit_, &unit);
  tape.Notify(unit, &TapeObserver::BeforeForward);
  std::vector<Tensor> outputs;
  if (record && unit.recompute) {
    outputs = tape.RunRecomputed(unit, forward, inputs);
  } else {
    // Reverse order: the marker that stands first ends the unit's backward.
    if (record) tape.AppendMarker(unit, &TapeObserver::AfterBackward);
    outputs = forward(inputs);
    if (record) tape.AppendMarker(unit, &TapeObserver::BeforeBackward);
  }
  tape.Notify(unit, &TapeObserver::AfterForward);
  return outputs;
}

std::vector<Tensor> Tape::RunRecomputed(const Unit& unit, const UnitFunction& forward,
                                        const std::vector<Tensor>& inputs) {
  std::vector<Tensor> outputs;
  {
    const ModeGuard count_only(*this, Mode::kCountOnly);
    outputs = forward(inputs);
  }
  struct SavedInput {
    Saved saved;
    ValueId id;
    Parameter* parameter;
  };
  std::vector<SavedInput> kept;
  kept.reserve(inputs.size());
  for (const Tensor& t : inputs) kept.push_back({Saved(t), t.value_id(), t.parameter()});
  std::vector<int64_t> versions;
  versions.reserve(unit.parameters.size());
  for (const Parameter* p : unit.parameters) versions.push_back(p->version());
  std::vector<ValueId> output_ids;
  std::vector<Shape> output_shapes;
  output_ids.reserve(outputs.size());
  for (Tensor& t : outputs) {
    t = t.Detach();
    t.set_value_id(NewValueId());
    output_ids.push_back(t.value_id());
    output_shapes.push_back(t.shape());
  }
  // Backward of the whole unit: put its operations on the tape once more, behind a marker, with the
  // gradients of their outputs; the loop that runs the tape backwards goes on with them.
  auto replay = [this, &unit, forward, kept = std::move(kept),
                 versions = std::move(versions)](BackwardPass& pass) {
    Notify(unit, &TapeObserver::BeforeBackward);
    AppendMarker(unit, &TapeObserver::AfterBackward);
    for (size_t i = 0; i < versions.size(); ++i) {
      RequireUnchanged(*unit.parameters[i], versions[i]);
    }
    std::vector<Tensor> again;
    for (const SavedInput& in : kept) {
      Tensor t = in.saved.Get();
      t.set_value_id(in.id);
      t.set_parameter(in.parameter);
      again.push_back(std::move(t));
    }
    std::vector<Tensor> out;
    {
      const ModeGuard replaying(*this, Mode::kReplay);
      const UnitGuard within(unit_, &unit);
      out = forward(again);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      Tensor gradient = pass.TakeGradient(static_cast<int>(i));
      if (gradient.defined() && out[i].value_id() != 0) {
        AddGradient(out[i].value_id(), std::move(gradient));
      }
    }
  };
  nodes_.push_back(
      Node{"recompute", &unit, {}, output_ids, output_shapes, std::move(replay), /*always=*/true});
  return outputs;
}

void Tape::RunNode(const Node& node) {
  std::vector<Tensor> gradients(node.outputs.size());
  bool any = node.always;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const auto it = gradients_.find(node.outputs[i]);
    if (it == gradients_.end()) continue;
    // It has the shape in which the last operation used the output, reshaped since perhaps.
    gradients[i] = it->second.Reshape(node.output_shapes[i].dims());
    gradients_.erase(it);
    any = true;
  }
  if (any) {
    BackwardPass pass(*this, &node, std::move(gradients));
    node.backward(pass);
    if (check_finite_) CheckGradientsOf(node);
  }
  for (const Input& in : node.inputs) {
    if (in.parameter == nullptr) continue;
    const auto it = uses_.find(in.parameter);
    if (--it->second == 0) {
      uses_.erase(it);
      if (observer_ != nullptr) observer_->GradientReady(*in.parameter);
    }
  }
}

void Tape::CheckFinite(const Tensor& t, const char* what, const char* op, const Unit* unit) {
  if (!IsFloating(t.dtype())) return;
  Device& device = t.device();
  Tensor flag = Tensor::Zeros({1}, DType::kI32, device, "non-finite flag");
  device.current_stream().Launch(
      device.vector_kernels().non_finite,
      NonFiniteArgs{
          .x = t.data(), .dtype = t.dtype(), .n = t.numel(), .flag = flag.mutable_data<int32_t>()});
  if (flag.Item() == 0) return;
  throw NonFinite(absl::StrCat(what, " of ", op, unit == nullptr ? "" : " in ",
                               unit == nullptr ? "" : unit->name));
}

void Tape::CheckGradientsOf(const Node& node) {
  for (const Input& in : node.inputs) {
    if (in.parameter != nullptr && in.parameter->has_grad()) {
      CheckFinite(in.parameter->grad(),
                  ("the gradient of " + in.parameter->name() +
                   " behind the "
                   "backward")
                      .c_str(),
                  node.op, node.unit);
    }
    const auto it = gradients_.find(in.id);
    if (it != gradients_.end()) {
      CheckFinite(it->second, "the gradient of an input", node.op, node.unit);
    }
  }
}

void Tape::RunAll() {
  while (!nodes_.empty()) {
    const Node node = std::move(nodes_.back());
    nodes_.pop_back();
    RunNode(node);
  }
}

void Backward(const Tensor& loss, double scale) {
  Tape& tape = Tape::Current();
  Require(loss.numel() == 1, "backward: the loss must be one number, not ", Describe(loss));
  Require(loss.value_id() != 0,
          "backward: the loss depends on nothing that requires a gradient (or was computed under "
          "NoGrad)");
  tape.gradients_.clear();
  try {
    Tensor seed = Tensor::Empty(loss.shape(), loss.dtype(), loss.device(), "gradient of the loss");
    loss.device().current_stream().Launch(
        loss.device().vector_kernels().fill,
        FillArgs{.y = seed.mutable_data(), .dtype = seed.dtype(), .n = 1, .value = scale});
    tape.gradients_.emplace(loss.value_id(), std::move(seed));
    tape.loss_with_gradient_one_ = scale == 1.0 ? loss.value_id() : 0;
    const NoGrad recording_off_but_for_replays;
    tape.RunAll();
  } catch (...) {
    tape.Clear();
    throw;
  }
}

Tensor GradientOf(const Tensor& leaf) {
  const auto& gradients = Tape::Current().gradients_;
  const auto it = gradients.find(leaf.value_id());
  return it == gradients.end() ? Tensor() : it->second.Reshape(leaf.shape().dims());
}

}  // namespace pando
