#pragma once

// The table of all operations: for each, cases to run it on, what it must give, and how exactly.
// op_table_test.cc drives every check from it; an operation that is missing fails there.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/tensor.h"

namespace pando {

/// A tensor's shape and values on the host, before they are rounded to the dtype under test.
struct HostTensor {
  std::vector<int64_t> dims;
  std::vector<double> values;
};

using HostTensors = std::vector<HostTensor>;
/// An operation on tensors of one floating dtype. Constants go along inside (see Constant).
using OpFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
/// The same in f64 by plain loops.
using HostFunction = std::function<HostTensors(const HostTensors&)>;

/// One call of an operation.
struct OpCase {
  std::string name = {};
  /// Floating inputs, all of which get gradients. At least one.
  HostTensors inputs = {};
  OpFunction run = {};
  /// What it must equal, exactly one of the two: a composition of basic operations (values and
  /// gradients), or values by plain loops (gradients are then checked by finite differences alone).
  OpFunction oracle = {};
  HostFunction host = {};
  /// Roundings to the dtype, relative to a gradient's largest magnitude, beyond what the entry
  /// allows: where one tensor is several inputs, whose gradients are rounded and then added.
  double additions = 0;
  /// False where outputs have no gradients (comparisons).
  bool differentiable = true;
  /// False where the function has a kink at the inputs, is no smooth function of f64 at all, or
  /// sums so much that differences show its rounding alone.
  bool smooth = true;
};

/// How far a result may lie from the truth: for an element w of a tensor whose largest magnitude is
/// M (`floor`, if that is more: what cancelled),
///   (element |w| + tensor M) u_T + compute M u_C
/// where u_T is the unit roundoff of the dtype and u_C that of the type computed in (f32 for bf16).
struct Bound {
  double element = 0;
  double tensor = 0;
  double compute = 0;
  double floor = 0;
};

/// A call that must throw InvalidArgument with all of `mentions` in the message.
struct OpError {
  std::string name;
  std::function<void(Device&)> call;
  std::vector<std::string> mentions;
};

struct OpEntry {
  std::string name = {};
  /// Public functions that the cases exercise.
  std::vector<std::string> covers = {};
  Bound value = {};
  Bound gradient = {};
  /// Added to `tensor` of both where a GPU works in a 16-bit dtype: what it rounds on the way, as
  /// tensor cores take nothing wider.
  double tensor_core_roundings = 0;
  /// Where the bounds come from.
  std::string why = {};
  /// Inputs whose gradient, as a parameter's, is as exact as f32 even if the op works in bf16.
  std::vector<int> f32_gradients = {};
  std::vector<OpCase> cases = {};
  std::vector<OpError> errors = {};
};

/// All of them.
const std::vector<OpEntry>& OpTable();
/// 0 ... their number: parameters of tests that run for each.
std::vector<size_t> OpIndices();

// Its parts, by family.
void AddElementwiseOps(std::vector<OpEntry>& table);
void AddChoiceOps(std::vector<OpEntry>& table);
void AddReductions(std::vector<OpEntry>& table);
void AddShapeOps(std::vector<OpEntry>& table);
void AddMatrixOps(std::vector<OpEntry>& table);
void AddLinearOps(std::vector<OpEntry>& table);
void AddRowOps(std::vector<OpEntry>& table);
void AddLosses(std::vector<OpEntry>& table);
void AddAttention(std::vector<OpEntry>& table);

// What the parts share.

/// Elements of the shape `dims`.
int64_t CountOf(const std::vector<int64_t>& dims);
/// Values in [low, high] without pattern; other `seed`, other values.
HostTensor Spread(std::vector<int64_t> dims, double low, double high, int64_t seed = 0);
/// Values of magnitude in [low, high] of either sign: away from 0.
HostTensor AwayFromZero(std::vector<int64_t> dims, double low, double high, int64_t seed = 0);
/// Values in [-2, 2], no two closer than 4 / count: away from ties.
HostTensor Distinct(std::vector<int64_t> dims, int64_t seed = 0);
/// "[2, 3]".
std::string DimsName(const std::vector<int64_t>& dims);

/// `values`, queued as a tensor: they must outlive the work (as what a case captures does).
template <typename T>
Tensor Constant(const std::vector<T>& values, const Shape& shape, Device& device) {
  Tensor t = Tensor::Empty(shape, DTypeOf<T>::value, device, "constant");
  device.current_stream().Copy(t.mutable_data(), values.data(), t.bytes(), CopyKind::kHostToDevice);
  return t;
}

/// 0, 1, ... as global sample indices, from `first` on.
std::vector<int64_t> SampleIds(int64_t count, int64_t first);

/// Up to 71 products of magnitude up to 1 are summed in f32, in whatever order: the partial sums
/// stay below 8 here, and their roundings, half a unit each at most and of either sign, well below
/// 16 units.
inline constexpr Bound kSumOfProducts = {.element = 1, .tensor = 0, .compute = 16, .floor = 8};
inline constexpr char kSumOfProductsWhy[] =
    "f32 sums of up to 71 products: their roundings, of either sign, and one to the dtype";

/// GELU in its tanh form by basic operations.
Tensor GeluOracle(const Tensor& x);

/// Uninitialised tensors for calls that must be refused.
Tensor F32(Device& device, std::vector<int64_t> dims);
Tensor Bf16(Device& device, std::vector<int64_t> dims);
Tensor I32(Device& device, std::vector<int64_t> dims);
Tensor I64(Device& device, std::vector<int64_t> dims);

}  // namespace pando
