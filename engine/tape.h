#pragma once

// Automatic differentiation: a tape of the operations in the order of their execution, run in exact
// reverse by Backward. An operation of one's own needs four lines (see ops/gelu.cc):
//
//   if (Recording({&x})) {
//     Record("square", {&x}, {&y}, [x = Saved(x)](BackwardPass& pass) {
//       pass.Add(0, Mul(Scale(x.Get(), 2), pass.Gradient()));
//     });
//   }

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/parameter.h"
#include "engine/tensor.h"

namespace pando {

/// An identity that no other value has.
ValueId NewValueId();

/// While it lives, this thread's operations record nothing: evaluation, sampling.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};

/// A tensor kept from forward for backward. Of a parameter only the address is kept, so that its
/// bytes may be released in between and come back elsewhere.
class Saved {
 public:
  Saved() = default;
  explicit Saved(const Tensor& t);
  bool defined() const { return parameter_ != nullptr || tensor_.defined(); }
  /// The tensor, without gradient. Throws InvalidArgument, naming it, if its bytes have changed
  /// since or are released.
  Tensor Get() const;

 private:
  Tensor tensor_;
  Parameter* parameter_ = nullptr;
  Shape shape_;
  int64_t version_ = 0;
};

/// Where the gradient of an input goes: written, or added to if `accumulate`. The dtype is the
/// input's, or f32 for parameters (f64 for f64 ones).
struct GradientTarget {
  Tensor tensor;
  bool accumulate = false;
};

class Tape;

/// What an operation's backward function sees.
class BackwardPass {
 public:
  /// Gradient of the loss by output `i`, in the output's shape; undefined if none arrived (with a
  /// single output, one always has).
  const Tensor& Gradient(int i = 0) const { return gradients_[static_cast<size_t>(i)]; }
  /// Takes it, so that a backward that may overwrite it can.
  Tensor TakeGradient(int i = 0) { return std::move(gradients_[static_cast<size_t>(i)]); }
  /// Whether the gradient of output `i` is known to be 1: the output is the loss itself.
  bool GradientIsOne(int i = 0) const;
  /// Whether input `i` wants a gradient.
  bool Needs(int i) const;
  /// Whether input `i` is a parameter: its gradient is then kept in f32 (or f64).
  bool IsParameter(int i) const;
  /// Whether another input is the same value: their gradients have one place, so that neither can
  /// be written while the other is.
  bool SharesPlace(int i) const;
  /// The place for input i's gradient, for kernels that can accumulate. Ask only if Needs(i), and
  /// write it whole.
  GradientTarget Target(int i);
  /// Adds `gradient`, of input i's shape, to the gradient of input i; nothing if it isn't needed.
  void Add(int i, Tensor gradient);

 private:
  friend class Tape;
  BackwardPass(Tape& tape, const void* node, std::vector<Tensor> gradients)
      : tape_(tape), node_(node), gradients_(std::move(gradients)) {}

  Tape& tape_;
  const void* node_;
  std::vector<Tensor> gradients_;
};

using BackwardFunction = std::function<void(BackwardPass&)>;

/// Whether an operation on `inputs` (undefined ones allowed) is to be recorded.
bool Recording(std::initializer_list<const Tensor*> inputs);
bool Recording(const std::vector<Tensor>& inputs);

/// Records an operation that has run (or is queued) and gives its outputs their identities. Call
/// only if Recording(inputs).
void Record(const char* op, std::initializer_list<const Tensor*> inputs,
            std::initializer_list<Tensor*> outputs, BackwardFunction backward);
void Record(const char* op, const std::vector<Tensor>& inputs,
            std::initializer_list<Tensor*> outputs, BackwardFunction backward);

/// A segment of a model whose parameters come and go together: a transformer block, say.
struct Unit {
  std::string name;
  /// All that it uses. One that several units use (a tied embedding) belongs to the first.
  std::vector<Parameter*> parameters;
  /// Keep only the inputs, and run the segment's forward again inside backward.
  bool recompute = false;
};

/// Hears of the ends of units, in forward (also under NoGrad) and in backward, and of gradients
/// that are complete. ZeRO gathers and reduces from here.
class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  virtual void BeforeForward(const Unit& /*unit*/) {}
  virtual void AfterForward(const Unit& /*unit*/) {}
  /// Before the first backward operation of the unit (and before its replay, if recomputed).
  virtual void BeforeBackward(const Unit& /*unit*/) {}
  virtual void AfterBackward(const Unit& /*unit*/) {}
  /// All uses of the parameter on the tape have added their gradients.
  virtual void GradientReady(Parameter& /*parameter*/) {}
};

/// While it lives, every recorded output and every gradient of this thread's tape is looked at, at
/// the price of a wait each, and the first infinite one or NaN throws NonFinite, naming operation
/// and unit.
class CheckFiniteGuard {
 public:
  CheckFiniteGuard();
  ~CheckFiniteGuard();
  CheckFiniteGuard(const CheckFiniteGuard&) = delete;
  CheckFiniteGuard& operator=(const CheckFiniteGuard&) = delete;
};

using UnitFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// Runs `forward(inputs)` as one segment of the tape. `unit` and what `forward` refers to must live
/// until Backward is done. With unit.recompute, `forward` must give the same values again (draw
/// randomness from counters, as ops do) and reach tensors that need gradients, parameters apart,
/// only through `inputs`.
std::vector<Tensor> RunUnit(const Unit& unit, const UnitFunction& forward,
                            const std::vector<Tensor>& inputs);

/// Gradients of the scalar `loss`, times `scale`, by everything recorded since the tape was last
/// empty: parameters' are added to their places, leaves' are kept for GradientOf. Empties the tape,
/// also when it throws.
void Backward(const Tensor& loss, double scale = 1.0);

/// The gradient that the last Backward left for a leaf (Tensor::RequireGrad); undefined if none.
Tensor GradientOf(const Tensor& leaf);

/// The tape of this thread.
class Tape {
 public:
  static Tape& Current();

  void set_observer(TapeObserver* observer) { observer_ = observer; }
  /// Recorded operations, markers of units included.
  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }
  /// Forgets everything recorded and all leaves' gradients: after a failed forward.
  void Clear();

 private:
  friend class BackwardPass;
  friend class CheckFiniteGuard;
  friend class NoGrad;
  friend bool Recording(std::initializer_list<const Tensor*>);
  friend bool Recording(const std::vector<Tensor>&);
  friend void Record(const char*, std::initializer_list<const Tensor*>,
                     std::initializer_list<Tensor*>, BackwardFunction);
  friend void Record(const char*, const std::vector<Tensor>&, std::initializer_list<Tensor*>,
                     BackwardFunction);
  friend std::vector<Tensor> RunUnit(const Unit&, const UnitFunction&, const std::vector<Tensor>&);
  friend void Backward(const Tensor&, double);
  friend Tensor GradientOf(const Tensor&);

  struct Input {
    ValueId id;
    Parameter* parameter;  // null unless trainable
    Shape shape;
    DType dtype;
    Device* device;
  };
  struct Node {
    const char* op;
    const Unit* unit;  // null outside of units
    std::vector<Input> inputs;
    std::vector<ValueId> outputs;
    std::vector<Shape> output_shapes;
    BackwardFunction backward;
    bool always = false;  // runs even if no gradient arrives: markers and replays
  };
  /// What Record does: append and count uses; only count (first forward of a recomputed unit);
  /// only append (its replay, whose uses are counted already).
  enum class Mode { kRecord, kCountOnly, kReplay };
  class ModeGuard;

  static Input InputOf(const Tensor& t);
  static bool Wants(const Tensor& t);
  void Append(const char* op, std::vector<Input> inputs, std::initializer_list<Tensor*> outputs,
              BackwardFunction backward);
  void AppendMarker(const Unit& unit, void (TapeObserver::*hook)(const Unit&));
  std::vector<Tensor> RunRecomputed(const Unit& unit, const UnitFunction& forward,
                                    const std::vector<Tensor>& inputs);
  void Notify(const Unit& unit, void (TapeObserver::*hook)(const Unit&));
  static void CheckFinite(const Tensor& t, const char* what, const char* op, const Unit* unit);
  void CheckGradientsOf(const Node& node);
  void RunAll();
  void RunNode(const Node& node);
  void AddGradient(ValueId id, Tensor gradient);

  std::vector<Node> nodes_;
  std::unordered_map<ValueId, Tensor> gradients_;
  ValueId loss_with_gradient_one_ = 0;
  std::unordered_map<Parameter*, int64_t> uses_;  // not yet run in backward
  TapeObserver* observer_ = nullptr;
  Mode mode_ = Mode::kRecord;
  int no_grad_ = 0;
  bool check_finite_ = false;
  const Unit* unit_ = nullptr;  // being run forward
};

}  // namespace pando
