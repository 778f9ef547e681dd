// Checks of every operation, driven by the table: values, gradients, and what autograd promises.
#include "tests/ops/op_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "engine/cpu/cpu_device.h"
#include "engine/tape.h"
#include "tests/ops/op_evaluate.h"
#include "tests/samples.h"

namespace pando {
namespace {

class OpTableTest : public testing::TestWithParam<size_t> {
 protected:
  const OpEntry& op() const { return OpTable()[GetParam()]; }
};

/// The bound between two results that each lie within `b` of the truth. Compositions and loops of
/// f64 make about as many more roundings themselves, at the magnitude of what is summed.
Bound BetweenF64(const Bound& b) {
  return {2 * b.element, 2 * b.tensor, 2 * b.compute + 64, std::max(b.floor, 1.0)};
}

TEST_P(OpTableTest, EqualsItsOracleInF64) {
  for (const OpCase& c : op().cases) {
    ASSERT_NE(c.oracle == nullptr, c.host == nullptr) << c.name;
    const Evaluation got = Evaluate(c, c.run, {});
    const Bound value = BetweenF64(op().value);
    if (c.oracle != nullptr) {
      OpCase plain = c;
      const Evaluation want = Evaluate(plain, c.oracle, {});
      ExpectClose(got, want, Where(op(), c), DType::kF64, value,
                  BetweenF64(GradientBound(op(), c)));
    } else {
      const HostTensors want = c.host(c.inputs);
      ASSERT_EQ(got.outputs.size(), want.size()) << c.name;
      for (size_t k = 0; k < want.size(); ++k) {
        ExpectWithin(got.outputs[k], want[k], value, DType::kF64, Where(op(), c, "output"));
      }
    }
  }
}

/// The projection of all outputs, as a function of the inputs. Wider than f64, so that the
/// differences between such sums of thousands of terms are exact enough.
long double Projection(const OpCase& c, const HostTensors& inputs) {
  const HostTensors outputs = Forward(c, inputs);
  long double sum = 0;
  for (size_t k = 0; k < outputs.size(); ++k) {
    for (size_t i = 0; i < outputs[k].values.size(); ++i) {
      sum += outputs[k].values[i] *
             ProjectionWeight(1, static_cast<int64_t>(k), static_cast<int64_t>(i));
    }
  }
  return sum;
}

/// d Projection / dt at 0 of inputs + t direction, to O(h^4).
double DirectionalSlope(const OpCase& c, const HostTensors& direction) {
  constexpr double kStep = 5e-4;
  const auto at = [&](double t) {
    HostTensors x = c.inputs;
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x[i].values.size(); ++j) {
        x[i].values[j] += t * direction[i].values[j];
      }
    }
    return Projection(c, x);
  };
  return static_cast<double>((8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) /
                             (12 * kStep));
}

/// Directions to differentiate in: one that takes in everything, and single elements, of each input
/// the first, the last and some between.
std::vector<HostTensors> Directions(const OpCase& c) {
  HostTensors zero = c.inputs;
  double squares = 0;
  for (HostTensor& t : zero) {
    squares += static_cast<double>(t.values.size());
    t.values.assign(t.values.size(), 0.0);
  }
  std::vector<HostTensors> directions;
  HostTensors all = zero;
  int64_t seed = 0;
  for (HostTensor& t : all) {
    for (double& v : t.values) v = Sample(++seed, std::sqrt(2 / squares));
  }
  directions.push_back(std::move(all));
  const size_t elements = squares > 4096 ? 3 : 23;
  for (size_t i = 0; i < zero.size(); ++i) {
    const size_t n = zero[i].values.size();
    const size_t picks = std::min(n, elements);
    for (size_t p = 0; p < picks; ++p) {
      directions.push_back(zero);
      directions.back()[i].values[picks == 1 ? 0 : p * (n - 1) / (picks - 1)] = 1;
    }
  }
  return directions;
}

// Central differences of order 4 with a step of 5e-4: truncation 5e-4^4 / 30 times fifth
// derivatives (up to some thousand for a quotient), and rounding 1e-16 / 5e-4 times the sum.
TEST_P(OpTableTest, GradientsAreFiniteDifferencesInF64) {
  for (const OpCase& c : op().cases) {
    if (!c.differentiable || !c.smooth) continue;
    const Evaluation e = Evaluate(c, c.run, {});
    double largest = 1;
    for (const HostTensor& g : e.gradients) {
      for (const double v : g.values) largest = std::max(largest, std::fabs(v));
    }
    for (const HostTensors& direction : Directions(c)) {
      double want = 0;
      for (size_t i = 0; i < direction.size(); ++i) {
        want += Dot(e.gradients[i].values, direction[i].values);
      }
      ASSERT_NEAR(DirectionalSlope(c, direction), want, 1e-9 * largest)
          << Where(op(), c, "finite differences");
    }
  }
}

TEST_P(OpTableTest, NarrowTypesFollowF64OnTheSameInputs) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const OpCase& c : op().cases) {
      const OpCase rounded = OnRounded(c, dtype);
      const Evaluation want = Evaluate(rounded, c.run, {});
      const Evaluation got = Evaluate(rounded, c.run, {.dtype = dtype});
      ExpectClose(got, want, Where(op(), c), dtype, op().value, GradientBound(op(), c));
    }
  }
}

TEST_P(OpTableTest, UsesOfOneTensorAddTheirGradients) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const OpCase& c : op().cases) {
      if (!c.differentiable) continue;
      const OpCase rounded = OnRounded(c, dtype);
      const Evaluation first = Evaluate(rounded, c.run, {.seeds = {1}});
      const Evaluation second = Evaluate(rounded, c.run, {.seeds = {2}});
      const Evaluation both = Evaluate(rounded, c.run, {.dtype = dtype, .seeds = {1, 2}});
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        HostTensor sum = first.gradients[i];
        double largest = op().gradient.floor;
        for (size_t j = 0; j < sum.values.size(); ++j) {
          const double added = second.gradients[i].values[j];
          largest = std::max({largest, std::fabs(sum.values[j]), std::fabs(added)});
          sum.values[j] += added;
        }
        // Two results, each within its bound of magnitudes that may cancel, and one sum.
        Bound b = GradientBound(op(), c);
        b.floor = largest;
        b.tensor = 2 * (b.tensor + b.element);
        b.compute *= 2;
        b.element = 1;
        ExpectWithin(both.gradients[i], sum, b, dtype,
                     Where(op(), c, absl::StrCat("sum of gradients of input ", i)));
      }
    }
  }
}

/// c.run with inputs and outputs reshaped to vectors and back: a value's gradient then arrives in
/// another shape than the operation gave it.
OpFunction WithinReshapes(const OpCase& c) {
  return [&c](const std::vector<Tensor>& x) {
    std::vector<Tensor> inputs, outputs;
    for (size_t i = 0; i < x.size(); ++i) {
      inputs.push_back(x[i].Reshape({x[i].numel()}).Reshape(c.inputs[i].dims));
    }
    for (const Tensor& y : c.run(inputs)) outputs.push_back(y.Reshape({y.numel(), 1}));
    return outputs;
  };
}

TEST_P(OpTableTest, GradientsFindTheirShapeAgain) {
  for (const OpCase& c : op().cases) {
    Evaluation want = Evaluate(c, c.run, {});
    for (HostTensor& y : want.outputs) y.dims = {CountOf(y.dims), 1};
    ExpectSame(Evaluate(c, WithinReshapes(c), {}), want, Where(op(), c, "reshaped"));
  }
}

TEST_P(OpTableTest, DeferredStreamsGiveTheSameBits) {
  for (const uint64_t seed : {1, 2, 3}) {
    const std::unique_ptr<Device> device = NewDeferredCpuDevice(seed);
    for (const OpCase& c : op().cases) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Evaluation want = Evaluate(c, c.run, {.dtype = dtype});
        const Evaluation got = Evaluate(c, c.run, {.dtype = dtype, .device = device.get()});
        ExpectSame(got, want, Where(op(), c, absl::StrCat("deferred, seed ", seed)));
      }
    }
  }
}

TEST_P(OpTableTest, FrozenInputsGetNoGradientAndChangeNoOther) {
  for (const OpCase& c : op().cases) {
    if (!c.differentiable) continue;
    const Evaluation all = Evaluate(c, c.run, {.dtype = DType::kF32});
    // Each input frozen on its own, and each on its own not frozen; with none left, nothing runs.
    std::vector<std::vector<size_t>> choices;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      choices.push_back({i});
      choices.push_back({});
      for (size_t j = 0; j < c.inputs.size(); ++j) {
        if (j != i) choices.back().push_back(j);
      }
    }
    for (const auto& frozen : choices) {
      const Evaluation e = Evaluate(c, c.run, {.dtype = DType::kF32, .frozen = frozen});
      Evaluation want = all;
      for (const size_t i : frozen) {
        want.has_gradient[i] = false;
        want.gradients[i] = HostTensor{};
      }
      ExpectSame(e, want, Where(op(), c, "frozen inputs"));
    }
  }
}

TEST_P(OpTableTest, NoGradRecordsNothingAndGivesTheSameValues) {
  for (const OpCase& given : op().cases) {
    const OpCase c = OnRounded(given, DType::kBF16);
    const HostTensors want = Evaluate(c, c.run, {.dtype = DType::kBF16}).outputs;
    const NoGrad no_grad;
    Uploads uploads;
    std::vector<Tensor> inputs;
    for (const HostTensor& t : c.inputs) {
      inputs.push_back(Upload(t, DType::kBF16, CpuDevice(), uploads).RequireGrad());
    }
    const std::vector<Tensor> outputs = c.run(inputs);
    EXPECT_EQ(Tape::Current().size(), 0) << c.name;
    for (size_t k = 0; k < outputs.size(); ++k) {
      ExpectSameBits(Download(outputs[k]), want[k], Where(op(), c, "without recording"));
    }
    // Nothing may have been overwritten either.
    for (size_t i = 0; i < inputs.size(); ++i) {
      ExpectSameBits(Download(inputs[i]), c.inputs[i], Where(op(), c, "input"));
    }
  }
}

TEST_P(OpTableTest, WrongArgumentsAreNamed) {
  ASSERT_FALSE(op().errors.empty());
  const std::unique_ptr<Device> device = NewDeferredCpuDevice(1);
  for (const OpError& error : op().errors) {
    try {
      error.call(*device);
      ADD_FAILURE() << op().name << ", " << error.name << ": nothing was thrown";
    } catch (const InvalidArgument& e) {
      for (const std::string& words : error.mentions) {
        EXPECT_NE(std::string(e.what()).find(words), std::string::npos)
            << op().name << ", " << error.name << ": " << e.what() << " lacks " << words;
      }
    }
    EXPECT_EQ(Tape::Current().size(), 0) << op().name << ", " << error.name;
    Tape::Current().Clear();
    device->Synchronize();
  }
}

INSTANTIATE_TEST_SUITE_P(Op, OpTableTest, testing::ValuesIn(OpIndices()),
                         [](const auto& info) { return OpTable()[info.param].name; });

}  // namespace
}  // namespace pando
