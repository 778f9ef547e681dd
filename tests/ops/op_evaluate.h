#pragma once

// Runs a case of the table on a device, forward and backward, and brings everything to the host.

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/tensor.h"
#include "tests/ops/op_table.h"

namespace pando {

/// Host copies of uploads that are queued but may not have run.
using Uploads = std::list<std::vector<char>>;

/// Queues `t`, rounded to `dtype`, as a tensor.
Tensor Upload(const HostTensor& t, DType dtype, Device& device, Uploads& uploads);
/// Waits for the values of `t`, of any dtype.
HostTensor Download(const Tensor& t);
/// The nearest value of the floating `dtype`.
double Rounded(double x, DType dtype);
HostTensors Rounded(HostTensors inputs, DType dtype);

/// Element i of the weights with which output `output` enters the scalar that is differentiated:
/// multiples of 1/8 up to 1, so exact in every floating dtype. Another seed, another scalar.
double ProjectionWeight(int64_t seed, int64_t output, int64_t i);

/// The scalar sum of outputs times weights, as far as backward is concerned: its own value is 0.
/// Outputs that depend on nothing differentiable are left out.
Tensor Project(const std::vector<Tensor>& outputs, int64_t seed, Uploads& uploads);

struct EvaluateOptions {
  DType dtype = DType::kF64;
  Device* device = nullptr;  ///< null: CpuDevice()
  /// Indices of inputs to freeze.
  std::vector<size_t> frozen = {};
  /// One call of the operation for each, all on the same inputs, each with its own projection.
  std::vector<int64_t> seeds = {1};
  /// Differentiate the only output, a loss, itself, instead of a projection.
  bool direct_loss = false;
};

struct Evaluation {
  HostTensors outputs;             ///< of the first call
  std::vector<bool> has_gradient;  ///< by input
  HostTensors gradients;           ///< by input; empty where there is none
};

/// Forward and (if `c` is differentiable) backward of `f` on c's inputs.
Evaluation Evaluate(const OpCase& c, const OpFunction& f, const EvaluateOptions& options);

/// `c` on inputs rounded to `dtype`.
OpCase OnRounded(const OpCase& c, DType dtype);

/// Outputs of c.run on `inputs`, in f64 without recording.
HostTensors Forward(const OpCase& c, const HostTensors& inputs);

/// Fails (with `what`) unless `got` lies within `bound` of `want`; `dtype` is what it was computed
/// in and stored as.
void ExpectWithin(const HostTensor& got, const HostTensor& want, const Bound& bound, DType dtype,
                  const std::string& what);
/// Outputs within `value` and gradients within `gradient`.
void ExpectClose(const Evaluation& got, const Evaluation& want, const std::string& what,
                 DType dtype, const Bound& value, const Bound& gradient);
/// What the entry allows for gradients, in this case.
Bound GradientBound(const OpEntry& op, const OpCase& c);
/// "LayerNorm [2, 3]: what".
std::string Where(const OpEntry& op, const OpCase& c, const std::string& what = "");
void ExpectSameBits(const HostTensor& got, const HostTensor& want, const std::string& what);
/// All outputs and gradients to the bit.
void ExpectSame(const Evaluation& got, const Evaluation& want, const std::string& what);

}  // namespace pando
