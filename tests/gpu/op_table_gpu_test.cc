// Every operation on a real GPU, driven by the table of operations: values and gradients in each
// dtype against f64 on the CPU on the same rounded inputs. tests/emulated_cuda does the same
// without a GPU.
#include <gtest/gtest.h>

#include "engine/cuda/cuda_device.h"
#include "tests/ops/op_evaluate.h"
#include "tests/ops/op_table.h"

namespace pando {
namespace {

class OpTableGpuTest : public testing::TestWithParam<size_t> {
 protected:
  const OpEntry& op() const { return OpTable()[GetParam()]; }
};

TEST_P(OpTableGpuTest, FollowsF64OnTheSameInputs) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const OpCase& given : op().cases) {
      const OpCase c = OnRounded(given, dtype);
      const Evaluation want = Evaluate(c, c.run, {});
      const Evaluation got = Evaluate(c, c.run, {.dtype = dtype, .device = &CudaDevice(0)});
      ExpectClose(got, want, Where(op(), c, ""), dtype, op().value, GradientBound(op(), c));
    }
  }
}

TEST_P(OpTableGpuTest, GivesTheSameBitsAgain) {
  for (const OpCase& given : op().cases) {
    const OpCase c = OnRounded(given, DType::kBF16);
    const EvaluateOptions on_gpu = {.dtype = DType::kBF16, .device = &CudaDevice(0)};
    const Evaluation first = Evaluate(c, c.run, on_gpu);
    ExpectSame(Evaluate(c, c.run, on_gpu), first, Where(op(), c, "again"));
  }
}

INSTANTIATE_TEST_SUITE_P(Op, OpTableGpuTest, testing::ValuesIn(OpIndices()),
                         [](const auto& info) { return OpTable()[info.param].name; });

}  // namespace
}  // namespace pando
