// Linear layers on an emulated GPU: that products do what can be done along with them, with the
// same results as without, and that a second step makes nothing new.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/allocator.h"
#include "engine/bounded_cache.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cuda/cuda_device.h"
#include "engine/flat_parameters.h"
#include "engine/module.h"
#include "engine/tape.h"
#include "ops/gelu.h"
#include "ops/linear.h"
#include "tests/emulated_cuda/emulated_cuda.h"
#include "tests/ops/op_evaluate.h"

namespace pando {
namespace {

constexpr int64_t kRows = 24, kWidth = 16, kHidden = 40;

/// The parameters of a feed-forward network.
class Network : public Module {
 public:
  explicit Network(const Scope& scope)
      : Module(scope),
        weight_in(scope, "weight_in", {kWidth, kHidden}, Initializer::Normal(0, 0.5),
                  WeightDecay::kNo),
        bias_in(scope, "bias_in", Shape{kHidden}, Initializer::Normal(0, 0.5), WeightDecay::kNo),
        weight_out(scope, "weight_out", {kHidden, kWidth}, Initializer::Normal(0, 0.5),
                   WeightDecay::kNo),
        bias_out(scope, "bias_out", Shape{kWidth}, Initializer::Normal(0, 0.5), WeightDecay::kNo) {}

  Tensor Fused(const Tensor& x) const {
    return FeedForward(x, weight_in, bias_in, weight_out, bias_out);
  }
  Parameter weight_in, bias_in, weight_out, bias_out;
};

/// A network on a device, with the gradients of `steps` backward passes added up.
struct Trial {
  Trial(Device& device, DType dtype, int steps)
      : model(registry.Root()), flat(registry, dtype, device) {
    flat.Initialize(/*seed=*/3);
    for (int i = 0; i < steps; ++i) Step(device, dtype);
    for (Parameter* p : registry.parameters()) gradients.push_back(Download(p->grad()));
  }

  void Step(Device& device, DType dtype) {
    Uploads uploads;
    Tensor x = Upload(Spread({kRows, kWidth}, -1, 1), dtype, device, uploads).RequireGrad();
    const Tensor y = model.Fused(x);
    output = Download(y);
    Backward(Project({y}, 1, uploads));
    gradients = {Download(GradientOf(x))};
  }

  ParameterRegistry registry;
  Network model;
  FlatParameters flat;
  HostTensor output;
  HostTensors gradients;  // x, then the parameters
};

class FusedLinearTest : public testing::Test {
 protected:
  void Use(int capability) { emulated_cuda::Configure({.compute_capability = capability}); }
  ~FusedLinearTest() override { Use(90); }
};

void ExpectClose(const Trial& got, const Trial& want, DType dtype, const Bound& bound) {
  ExpectWithin(got.output, want.output, bound, dtype, "output");
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (size_t i = 0; i < got.gradients.size(); ++i) {
    ExpectWithin(got.gradients[i], want.gradients[i], bound, dtype,
                 "gradient " + std::to_string(i));
  }
}

// Against the CPU, which fuses nothing: both round the same intermediate results but one, GELU's
// input, which the fused product doesn't round before GELU.
TEST_F(FusedLinearTest, OnHopperEverythingIsFused) {
  Use(90);
  const auto count = [] {
    return std::vector<int64_t>{emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS),
                                emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_DGELU),
                                emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_BGRADA),
                                emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_BIAS)};
  };
  std::vector<int64_t> want = count();
  const Trial on_gpu(CudaDevice(0), DType::kBF16, 2);
  // Two steps: one first and one second product of each, a bias's gradient with each weight's.
  for (size_t i = 0; i < want.size(); ++i) want[i] += i == 2 ? 4 : 2;
  EXPECT_EQ(count(), want);
  ExpectClose(on_gpu, Trial(CpuDevice(), DType::kBF16, 2), DType::kBF16,
              {.element = 2, .tensor = 2, .floor = 4});
}

// The second layer's; the first one's comes with GELU's gradient.
TEST_F(FusedLinearTest, F32FusesOnlyABiasGradient) {
  Use(90);
  const int64_t sums = emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_BGRADA);
  const int64_t gelu = emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  const Trial on_gpu(CudaDevice(0), DType::kF32, 2);
  EXPECT_EQ(emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_BGRADA), sums + 2);
  EXPECT_EQ(emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS), gelu);
  ExpectClose(on_gpu, Trial(CpuDevice(), DType::kF32, 2), DType::kF32, {.compute = 16, .floor = 8});
}

TEST_F(FusedLinearTest, BeforeHopperGeluIsAKernelOfItsOwn) {
  Use(80);
  const int64_t before = emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  const Trial on_gpu(CudaDevice(0), DType::kBF16, 2);
  EXPECT_EQ(emulated_cuda::ProductsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS), before);
  ExpectClose(on_gpu, Trial(CpuDevice(), DType::kBF16, 2), DType::kBF16,
              {.element = 2, .tensor = 2, .floor = 4});
}

TEST_F(FusedLinearTest, AfterTheSecondStepNothingIsMade) {
  for (const int capability : {80, 90}) {
    Use(capability);
    Trial run(CudaDevice(0), DType::kBF16, 2);
    const int64_t made = bounded_cache_creations.load();
    const int64_t objects = emulated_cuda::GetCounters().library_objects;
    for (int i = 0; i < 3; ++i) run.Step(CudaDevice(0), DType::kBF16);
    EXPECT_EQ(bounded_cache_creations.load(), made);
    EXPECT_EQ(emulated_cuda::GetCounters().library_objects, objects);
  }
}

}  // namespace
}  // namespace pando
