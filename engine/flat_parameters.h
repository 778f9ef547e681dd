#pragma once

// The flat parameter space: all parameters of a model one after the other, each at a multiple of
// 128 elements. Addresses depend on the model alone, never on ZeRO stage, precision or world size,
// so that state can be cut into intervals and re-cut for another plan.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/module.h"
#include "engine/parameter.h"
#include "engine/tensor.h"

namespace pando {

/// Parameters start, and shards are cut, on multiples of this many elements.
inline constexpr int64_t kFlatAlignment = 128;

/// [begin, end) in elements of the flat space.
struct FlatInterval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// Which parameter lies where.
class FlatLayout {
 public:
  struct Entry {
    Parameter* parameter;
    int64_t offset;  // in elements
    int64_t end() const { return offset + parameter->padded_shape().numel(); }
  };
  /// A run of elements that the optimizer treats alike.
  struct Run {
    FlatInterval interval;
    bool decays;
  };

  explicit FlatLayout(const std::vector<Parameter*>& parameters);

  const std::vector<Entry>& entries() const { return entries_; }
  /// Length of the flat space, padding included: a multiple of kFlatAlignment.
  int64_t size() const { return size_; }
  /// The trainable part of `interval`, in runs of equal weight decay. Gaps between parameters are
  /// within runs where both sides are alike: their elements are zero and stay so.
  std::vector<Run> Runs(FlatInterval interval) const;

 private:
  std::vector<Entry> entries_;
  int64_t size_ = 0;
};

/// Values, gradients and, if the dtype of computation is narrower than f32, f32 masters of a whole
/// model in flat buffers on one device: what a single process trains. (ZeRO holds intervals.)
class FlatParameters {
 public:
  /// Allocates and places all parameters. `dtype` is that of computation: f32, bf16, f16, or f64
  /// for checking. Without `training`, no gradients and no masters. Values are undefined until
  /// Initialize or a load. Throws OutOfMemory.
  FlatParameters(const ParameterRegistry& registry, DType dtype, Device& device,
                 bool training = true);

  /// First values, by each parameter's initializer.
  void Initialize(uint64_t seed);

  const FlatLayout& layout() const { return layout_; }
  DType dtype() const { return dtype_; }
  Device& device() const { return values_.device(); }
  /// Flat tensors of layout().size() elements.
  Tensor& values() { return values_; }
  Tensor& grads() { return grads_; }
  /// The f32 values that the optimizer works on: values() itself in f32, a tensor of its own in
  /// bf16 and f16. Undefined in f64.
  Tensor& masters() { return masters_; }

  /// Forgets gradients, so that the next backward writes instead of adding. Costs nothing.
  void ClearGrads();
  /// Zeroes the gradients of parameters that no backward has reached since ClearGrads, so that the
  /// whole of grads() means something.
  void CompleteGrads();
  /// Copies the masters, if they lie apart, rounded to nearest, into the values (after a load), and
  /// tells parameters that they have changed.
  void ValuesFromMasters();
  /// Tells parameters that their values have changed (after an optimizer step).
  void MarkChanged();

  /// Reads and writes one parameter's f32 value (in f64, of f32 precision), without its padding.
  std::vector<float> ReadParameter(const Parameter& p);
  /// Takes effect in the values with ValuesFromMasters.
  void WriteParameter(const Parameter& p, std::span<const float> values);

 private:
  const FlatLayout::Entry& EntryOf(const Parameter& p) const;

  FlatLayout layout_;
  DType dtype_;
  Tensor values_;
  Tensor grads_;
  Tensor masters_;
};

}  // namespace pando
