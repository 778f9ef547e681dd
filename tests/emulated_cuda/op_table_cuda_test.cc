// Every operation on an emulated GPU, driven by the table of operations: values and gradients in
// each dtype against f64 on the CPU on the same rounded inputs, in several orders of threads.
#include <gtest/gtest.h>

#include <set>

#include "engine/cuda/cuda_device.h"
#include "tests/emulated_cuda/emulated_cuda.h"
#include "tests/ops/op_evaluate.h"
#include "tests/ops/op_table.h"

namespace pando {
namespace {

/// Orders of threads, blocks and streams in which cases are run, if their kernels have barriers.
constexpr uint64_t kSeeds = 5;

/// `b` with what tensor cores add.
Bound OnGpu(Bound b, const OpEntry& op, DType dtype) {
  if (SizeOf(dtype) == 2) b.tensor += op.tensor_core_roundings;
  return b;
}

class OpTableCudaTest : public testing::TestWithParam<size_t> {
 protected:
  OpTableCudaTest() {
    emulated_cuda::Configure({});
    // Every tensor in an allocation of its own, so that one that is overrun ends in a guard page.
    CudaDevice(0).allocator().SetDirect(true);
  }
  const OpEntry& op() const { return OpTable()[GetParam()]; }
};

TEST_P(OpTableCudaTest, FollowsF64OnTheSameInputs) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const OpCase& given : op().cases) {
      const OpCase c = OnRounded(given, dtype);
      const Evaluation want = Evaluate(c, c.run, {});
      const auto run = [&](uint64_t seed) {
        emulated_cuda::Configure({.seed = seed});
        return Evaluate(c, c.run, {.dtype = dtype, .device = &CudaDevice(0)});
      };
      const int64_t barriers = emulated_cuda::GetCounters().barriers;
      const Evaluation first = run(1);
      ExpectClose(first, want, Where(op(), c), dtype, OnGpu(op().value, op(), dtype),
                  OnGpu(GradientBound(op(), c), op(), dtype));
      if (emulated_cuda::GetCounters().barriers == barriers) continue;
      // In any order of threads the same to the bit.
      for (uint64_t seed = 2; seed <= kSeeds; ++seed) {
        ExpectSame(run(seed), first, Where(op(), c, absl::StrCat("seed ", seed)));
      }
    }
  }
}

TEST_P(OpTableCudaTest, RunsOnManyShapes) {
  std::set<std::vector<std::vector<int64_t>>> shapes;
  for (const OpCase& c : op().cases) {
    std::vector<std::vector<int64_t>> dims;
    for (const HostTensor& t : c.inputs) dims.push_back(t.dims);
    shapes.insert(dims);
  }
  EXPECT_GE(shapes.size(), 20U);
}

INSTANTIATE_TEST_SUITE_P(Op, OpTableCudaTest, testing::ValuesIn(OpIndices()),
                         [](const auto& info) { return OpTable()[info.param].name; });

}  // namespace
}  // namespace pando
