// The table's operations on parameters: gradients go to their places in f32 and add up there, and
// between forward and backward the values may move.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "engine/flat_parameters.h"
#include "engine/module.h"
#include "engine/tape.h"
#include "tests/ops/op_evaluate.h"
#include "tests/ops/op_table.h"
#include "tests/test_device.h"

namespace pando {
namespace {

/// A module whose parameters are the inputs of a case.
class CaseModule : public Module {
 public:
  CaseModule(const Scope& scope, const OpCase& c) : Module(scope) {
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      parameters_.push_back(std::make_unique<Parameter>(scope, absl::StrCat("input", i),
                                                        Shape(c.inputs[i].dims),
                                                        Initializer::Zeros(), WeightDecay::kNo));
    }
  }
  Parameter& operator[](size_t i) { return *parameters_[i]; }
  std::vector<Tensor> Values() const {
    std::vector<Tensor> values;
    for (const auto& p : parameters_) values.push_back(p->value());
    return values;
  }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
};

class ParameterCase {
 public:
  ParameterCase(const OpCase& c, DType dtype)
      : case_(c), model_(registry_.Root(), c), flat_(registry_, dtype, TestDevice()) {
    flat_.values().SetZero();
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const std::vector<float> f(c.inputs[i].values.begin(), c.inputs[i].values.end());
      flat_.WriteParameter(model_[i], f);
    }
    flat_.ValuesFromMasters();
  }

  /// Forward, then backward of the projection with `seed`; with `move`, every value lies elsewhere
  /// in between, and its old bytes are gone.
  void Run(int64_t seed, bool move = false) {
    const std::vector<Tensor> y = case_.run(model_.Values());
    const Tensor loss = Project(y, seed, uploads_);
    if (move) MoveValues();
    Backward(loss);
  }
  void ClearGrads() { flat_.ClearGrads(); }
  Parameter& parameter(size_t i) { return model_[i]; }
  HostTensor Gradient(size_t i) { return Download(model_[i].grad()); }

 private:
  void MoveValues() {
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      Tensor moved = Tensor::Empty(model_[i].padded_shape(), flat_.dtype(), TestDevice(), "moved");
      moved.CopyFrom(model_[i].value());
      model_[i].Place(moved);
    }
    flat_.values().storage()->Release();
  }

  const OpCase& case_;
  ParameterRegistry registry_;
  CaseModule model_;
  FlatParameters flat_;
  Uploads uploads_;
};

class OpParameterTest : public testing::TestWithParam<size_t> {
 protected:
  const OpEntry& op() const { return OpTable()[GetParam()]; }
  bool IsF32Sum(size_t input) const {
    for (const int i : op().f32_gradients) {
      if (static_cast<size_t>(i) == input) return true;
    }
    return false;
  }
  std::string What(const OpCase& c, size_t i, DType dtype, const char* what) const {
    return absl::StrCat(op().name, " ", c.name, " in ", Name(dtype), ": ", what, " of parameter ",
                        i);
  }
};

TEST_P(OpParameterTest, GradientsGoToTheirPlaces) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const OpCase& c : op().cases) {
      if (!c.differentiable) continue;
      OpCase rounded = c;
      rounded.inputs = Rounded(c.inputs, dtype);
      const Evaluation want = Evaluate(rounded, c.run, {});
      ParameterCase p(rounded, dtype);
      p.Run(1, /*move=*/true);
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        ASSERT_TRUE(p.parameter(i).has_grad());
        ASSERT_EQ(p.parameter(i).grad().dtype(), DType::kF32);
        Bound bound = op().gradient;
        bound.tensor += c.additions;
        ExpectWithin(p.Gradient(i), want.gradients[i], bound, IsF32Sum(i) ? DType::kF32 : dtype,
                     What(c, i, dtype, "gradient"));
      }
    }
  }
}

// In bf16 too: a sum kept in bf16 would be off by 2^-8.
TEST_P(OpParameterTest, BackwardsAddUpInF32) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const OpCase& c : op().cases) {
      if (!c.differentiable) continue;
      OpCase rounded = c;
      rounded.inputs = Rounded(c.inputs, dtype);
      ParameterCase p(rounded, dtype);
      HostTensors sums(c.inputs.size()), seconds(c.inputs.size());
      p.Run(1);
      for (size_t i = 0; i < c.inputs.size(); ++i) sums[i] = p.Gradient(i);
      p.ClearGrads();
      p.Run(2);
      double largest = op().gradient.floor;
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        const HostTensor second = p.Gradient(i);
        for (size_t j = 0; j < second.values.size(); ++j) {
          largest = std::max({largest, std::fabs(sums[i].values[j]), std::fabs(second.values[j])});
          sums[i].values[j] += second.values[j];
        }
      }
      p.ClearGrads();
      p.Run(1);
      p.Run(2);
      // One f32 rounding; where the kernel starts from the sum so far, as many as it has terms.
      const Bound b = {.element = 1, .compute = 2 * op().gradient.compute + 2, .floor = largest};
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        ExpectWithin(p.Gradient(i), sums[i], b, DType::kF32, What(c, i, dtype, "sum of gradients"));
      }
    }
  }
}

TEST_P(OpParameterTest, FrozenOnesGetNone) {
  for (const OpCase& c : op().cases) {
    if (!c.differentiable || c.inputs.size() < 2) continue;
    ParameterCase all(c, DType::kF32);
    all.Run(1);
    for (size_t frozen = 0; frozen < c.inputs.size(); ++frozen) {
      ParameterCase p(c, DType::kF32);
      p.parameter(frozen).set_requires_grad(false);
      p.Run(1);
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        ASSERT_EQ(p.parameter(i).has_grad(), i != frozen) << What(c, i, DType::kF32, "gradient");
        if (i == frozen) continue;
        const std::string what = What(c, i, DType::kF32, "gradient");
        if (TestDevice().type() == DeviceType::kCpu) {
          ExpectSameBits(p.Gradient(i), all.Gradient(i), what);
        } else {
          // Products may give a bias's gradient along with a weight's, summed in another order.
          Bound bound = op().gradient;
          bound.tensor += c.additions;
          ExpectWithin(p.Gradient(i), all.Gradient(i), bound, DType::kF32, what);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Op, OpParameterTest, testing::ValuesIn(OpIndices()),
                         [](const auto& info) { return OpTable()[info.param].name; });

}  // namespace
}  // namespace pando
