// --device and --precision of the pando program, on machines of all kinds.
#include "tools/pando/device_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/error.h"
#include "tests/emulated_cuda/emulated_cuda.h"

namespace pando {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class DeviceOptionTest : public testing::Test {
 protected:
  ~DeviceOptionTest() override { emulated_cuda::Configure({}); }
};

TEST_F(DeviceOptionTest, AutoTakesTheGpuIfThereIsOne) {
  const ChosenDevice gpu = ChooseDevice("auto");
  EXPECT_EQ(gpu.device->name(), "cuda:0");
  EXPECT_EQ(gpu.compute_capability, 90);
  EXPECT_THAT(gpu.note, AllOf(HasSubstr("device: cuda:0 ("), HasSubstr("compute capability 9.0")));
  EXPECT_EQ(ChooseDevice("cpu").device->name(), "cpu");
  EXPECT_EQ(ChooseDevice("cpu").note, "device: cpu");

  emulated_cuda::Configure({.devices = 0});
  const ChosenDevice cpu = ChooseDevice("auto");
  EXPECT_EQ(cpu.device->name(), "cpu");
  EXPECT_EQ(cpu.note, "device: cpu: no NVIDIA GPU");
  EXPECT_THAT([] { ChooseDevice("cuda"); },
              ThrowsMessage<InvalidArgument>("cuda:0: no NVIDIA GPU"));
}

TEST_F(DeviceOptionTest, NumbersGpus) {
  emulated_cuda::Configure({.devices = 2});
  EXPECT_EQ(ChooseDevice("cuda").device->name(), "cuda:0");
  EXPECT_EQ(ChooseDevice("cuda:1").device->name(), "cuda:1");
  EXPECT_THAT([] { ChooseDevice("cuda:2"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("there are 2 GPUs")));
  EXPECT_EQ(ChooseDevice("cuda:0").device->name(), "cuda:0");
  // Ranks of one node.
  EXPECT_EQ(ChooseDevice("cuda", 1).device->name(), "cuda:1");
  EXPECT_EQ(ChooseDevice("auto", 1).device->name(), "cuda:1");
  EXPECT_EQ(ChooseDevice("cuda", 2).device->name(), "cuda:0");
  EXPECT_EQ(ChooseDevice("cuda:0", 1).device->name(), "cuda:0");
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda0", "CUDA", "cpu:0"}) {
    EXPECT_THAT([bad] { ChooseDevice(bad); },
                ThrowsMessage<InvalidArgument>(HasSubstr("must be auto, cpu, cuda or cuda:N")));
  }
}

TEST_F(DeviceOptionTest, AGpuThatIsTooOldIsNotUsed) {
  emulated_cuda::Configure({.compute_capability = 70});
  EXPECT_THAT([] { ChooseDevice("cuda"); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("compute capability 7.0"),
                                                   HasSubstr("needs compute capability 7.5"))));
  const ChosenDevice chosen = ChooseDevice("auto");
  EXPECT_EQ(chosen.device->name(), "cpu");
  EXPECT_THAT(chosen.note, HasSubstr("too old"));
}

/// The dtype, and "+" for TF32; or what is wrong with it.
std::string PrecisionOf(const char* precision, const ChosenDevice& chosen) {
  try {
    const Precision p = ChoosePrecision(precision, chosen);
    return std::string(Name(p.dtype)) + (p.tf32 ? "+" : "");
  } catch (const InvalidArgument& e) {
    return e.what();
  }
}

TEST_F(DeviceOptionTest, PrecisionFollowsTheComputeCapability) {
  const ChosenDevice cpu = ChooseDevice("cpu");
  EXPECT_EQ(PrecisionOf("f32", cpu), "f32");
  EXPECT_EQ(PrecisionOf("bf16", cpu), "bf16");
  EXPECT_THAT(PrecisionOf("tf32", cpu), HasSubstr("--precision tf32: the CPU"));
  EXPECT_THAT(PrecisionOf("f16", cpu), HasSubstr("--precision f16: the CPU"));

  emulated_cuda::Configure({.compute_capability = 75});
  const ChosenDevice turing = ChooseDevice("cuda");
  EXPECT_EQ(PrecisionOf("f32", turing), "f32");
  EXPECT_EQ(PrecisionOf("f16", turing), "f16");
  for (const char* precision : {"bf16", "tf32"}) {
    EXPECT_EQ(PrecisionOf(precision, turing),
              std::string("--precision ") + precision +
                  ": cuda:0 has compute capability 7.5, and this needs 8.0: give f16 or f32");
  }

  emulated_cuda::Configure({.compute_capability = 80});
  const ChosenDevice ampere = ChooseDevice("cuda");
  EXPECT_EQ(PrecisionOf("f32", ampere), "f32");
  EXPECT_EQ(PrecisionOf("tf32", ampere), "f32+");
  EXPECT_EQ(PrecisionOf("bf16", ampere), "bf16");
  EXPECT_EQ(PrecisionOf("f16", ampere), "f16");
}

}  // namespace
}  // namespace pando
