#include "tests/ops/op_evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/cpu/cpu_device.h"
#include "engine/tape.h"
#include "tests/samples.h"

namespace pando {
namespace {

template <typename T>
std::vector<char> BytesOf(const std::vector<double>& values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T x = RoundTo<T>(static_cast<ComputeType<T>>(values[i]));
    std::memcpy(bytes.data() + i * sizeof(T), &x, sizeof(T));
  }
  return bytes;
}

std::vector<char> BytesOf(const std::vector<double>& values, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return BytesOf<float>(values);
    case DType::kBF16:
      return BytesOf<BFloat16>(values);
    case DType::kF16:
      return BytesOf<Float16>(values);
    default:
      return BytesOf<double>(values);
  }
}

template <typename T>
std::vector<double> ValuesOf(const Tensor& t) {
  return Doubles(t.ToHost<T>());
}

double UnitRoundoffOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return UnitRoundoff<float>();
    case DType::kBF16:
      return UnitRoundoff<BFloat16>();
    case DType::kF16:
      return UnitRoundoff<Float16>();
    default:
      return UnitRoundoff<double>();
  }
}

}  // namespace

Tensor Upload(const HostTensor& t, DType dtype, Device& device, Uploads& uploads) {
  uploads.push_back(BytesOf(t.values, dtype));
  Tensor y = Tensor::Empty(Shape(t.dims), dtype, device, "uploaded");
  device.current_stream().Copy(y.mutable_data(), uploads.back().data(), y.bytes(),
                               CopyKind::kHostToDevice);
  return y;
}

HostTensor Download(const Tensor& t) {
  HostTensor h{t.shape().dims(), {}};
  switch (t.dtype()) {
    case DType::kF32:
      h.values = ValuesOf<float>(t);
      break;
    case DType::kBF16:
      h.values = ValuesOf<BFloat16>(t);
      break;
    case DType::kF16:
      h.values = ValuesOf<Float16>(t);
      break;
    case DType::kF64:
      h.values = ValuesOf<double>(t);
      break;
    case DType::kI32:
      for (const int32_t v : t.ToHost<int32_t>()) h.values.push_back(v);
      break;
    case DType::kI64:
      for (const int64_t v : t.ToHost<int64_t>()) h.values.push_back(static_cast<double>(v));
      break;
  }
  return h;
}

double Rounded(double x, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<float>(x);
    case DType::kBF16:
      return ToFloat(ToBFloat16(static_cast<float>(x)));
    case DType::kF16:
      return ToFloat(ToFloat16(static_cast<float>(x)));
    default:
      return x;
  }
}

HostTensors Rounded(HostTensors inputs, DType dtype) {
  for (HostTensor& t : inputs) {
    for (double& x : t.values) x = Rounded(x, dtype);
  }
  return inputs;
}

double ProjectionWeight(int64_t seed, int64_t output, int64_t i) {
  const double s = Sample(i + 7919 * seed + 104729 * output, 8);
  return (s < 0 ? std::floor(s) : std::ceil(s)) / 8;
}

Tensor Project(const std::vector<Tensor>& outputs, int64_t seed, Uploads& uploads) {
  std::vector<Tensor> used, weights;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Tensor& y = outputs[k];
    if (!y.requires_grad()) continue;
    HostTensor w{y.shape().dims(), {}};
    for (int64_t i = 0; i < y.numel(); ++i) {
      w.values.push_back(ProjectionWeight(seed, static_cast<int64_t>(k), i));
    }
    used.push_back(y);
    weights.push_back(Upload(w, y.dtype(), y.device(), uploads));
  }
  Tensor loss = Tensor::Zeros({1}, DType::kF32, outputs[0].device(), "projection");
  if (Recording(used)) {
    Record("project", used, {&loss}, [weights](BackwardPass& pass) {
      for (size_t k = 0; k < weights.size(); ++k) pass.Add(static_cast<int>(k), weights[k]);
    });
  }
  return loss;
}

namespace {

/// Several projections' sum: backward reaches each of them with a gradient of 1.
Tensor Together(const std::vector<Tensor>& losses) {
  if (losses.size() == 1) return losses[0];
  Tensor sum = Tensor::Zeros({1}, DType::kF32, losses[0].device(), "projections");
  Record("together", losses, {&sum}, [n = losses.size()](BackwardPass& pass) {
    for (size_t k = 0; k < n; ++k) pass.Add(static_cast<int>(k), pass.Gradient());
  });
  return sum;
}

}  // namespace

Evaluation Evaluate(const OpCase& c, const OpFunction& f, const EvaluateOptions& options) {
  Device& device = options.device == nullptr ? CpuDevice() : *options.device;
  Uploads uploads;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.push_back(Upload(c.inputs[i], options.dtype, device, uploads));
    const bool frozen = std::count(options.frozen.begin(), options.frozen.end(), i) > 0;
    if (!frozen) inputs.back().RequireGrad();
  }
  Evaluation e;
  std::vector<Tensor> outputs, losses;
  for (const int64_t seed : options.seeds) {
    std::vector<Tensor> y = f(inputs);
    if (!options.direct_loss) losses.push_back(Project(y, seed, uploads));
    if (outputs.empty()) outputs = std::move(y);
  }
  const bool backward = c.differentiable && options.frozen.size() < inputs.size();
  bool any = false;
  for (const Tensor& y : outputs) {
    any = any || y.requires_grad();
    EXPECT_FALSE(y.requires_grad() && !IsFloating(y.dtype())) << c.name;
  }
  EXPECT_EQ(any, backward) << c.name;
  if (backward) Backward(options.direct_loss ? outputs[0] : Together(losses));
  for (const Tensor& y : outputs) e.outputs.push_back(Download(y));
  for (const Tensor& x : inputs) {
    const Tensor dx = GradientOf(x);
    e.has_gradient.push_back(dx.defined());
    e.gradients.push_back(dx.defined() ? Download(dx) : HostTensor{});
    EXPECT_TRUE(!dx.defined() || dx.dtype() == options.dtype) << c.name;
  }
  EXPECT_EQ(Tape::Current().size(), 0) << c.name;
  device.Synchronize();
  Tape::Current().Clear();
  return e;
}

OpCase OnRounded(const OpCase& c, DType dtype) {
  OpCase rounded = c;
  rounded.inputs = Rounded(c.inputs, dtype);
  return rounded;
}

HostTensors Forward(const OpCase& c, const HostTensors& inputs) {
  const NoGrad no_grad;
  Uploads uploads;
  std::vector<Tensor> tensors;
  for (const HostTensor& t : inputs) {
    tensors.push_back(Upload(t, DType::kF64, CpuDevice(), uploads));
  }
  HostTensors outputs;
  for (const Tensor& y : c.run(tensors)) outputs.push_back(Download(y));
  return outputs;
}

void ExpectWithin(const HostTensor& got, const HostTensor& want, const Bound& bound, DType dtype,
                  const std::string& what) {
  ASSERT_EQ(got.dims, want.dims) << what;
  double largest = bound.floor;
  for (const double w : want.values) largest = std::max(largest, std::fabs(w));
  const double u_t = UnitRoundoffOf(dtype);
  const double u_c = dtype == DType::kF64 ? u_t : UnitRoundoff<float>();
  // Half of f16's least step: what a rounding amounts to where values are subnormal.
  const double tiny = dtype == DType::kF16 ? 0x1p-25 * (bound.element + bound.tensor) : 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    const double w = want.values[i];
    const double tolerance = (bound.element * std::fabs(w) + bound.tensor * largest) * u_t +
                             bound.compute * largest * u_c + tiny;
    ASSERT_NEAR(got.values[i], w, tolerance) << what << " at " << i << " of " << DimsName(want.dims)
                                             << " in " << Name(dtype) << ", largest " << largest;
  }
}

void ExpectClose(const Evaluation& got, const Evaluation& want, const std::string& what,
                 DType dtype, const Bound& value, const Bound& gradient) {
  ASSERT_EQ(got.outputs.size(), want.outputs.size()) << what;
  for (size_t k = 0; k < got.outputs.size(); ++k) {
    ExpectWithin(got.outputs[k], want.outputs[k], value, dtype, absl::StrCat(what, "output ", k));
  }
  for (size_t i = 0; i < got.gradients.size(); ++i) {
    ExpectWithin(got.gradients[i], want.gradients[i], gradient, dtype,
                 absl::StrCat(what, "gradient of input ", i));
  }
}

Bound GradientBound(const OpEntry& op, const OpCase& c) {
  Bound b = op.gradient;
  b.tensor += c.additions;
  return b;
}

std::string Where(const OpEntry& op, const OpCase& c, const std::string& what) {
  return absl::StrCat(op.name, " ", c.name, ": ", what);
}

void ExpectSameBits(const HostTensor& got, const HostTensor& want, const std::string& what) {
  ASSERT_EQ(got.dims, want.dims) << what;
  for (size_t i = 0; i < want.values.size(); ++i) {
    ASSERT_EQ(__builtin_bit_cast(uint64_t, got.values[i]),
              __builtin_bit_cast(uint64_t, want.values[i]))
        << what << " at " << i << ": " << got.values[i] << " and " << want.values[i];
  }
}

void ExpectSame(const Evaluation& got, const Evaluation& want, const std::string& what) {
  ASSERT_EQ(got.outputs.size(), want.outputs.size()) << what;
  for (size_t k = 0; k < got.outputs.size(); ++k) {
    ExpectSameBits(got.outputs[k], want.outputs[k], absl::StrCat(what, ", output ", k));
  }
  for (size_t i = 0; i < got.gradients.size(); ++i) {
    ASSERT_EQ(got.has_gradient[i], want.has_gradient[i]) << what;
    ExpectSameBits(got.gradients[i], want.gradients[i], absl::StrCat(what, ", gradient ", i));
  }
}

}  // namespace pando
