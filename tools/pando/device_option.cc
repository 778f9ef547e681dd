#include "tools/pando/device_option.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/slowed_device.h"
#include "engine/cuda/cuda_device.h"
#include "engine/error.h"

namespace pando {
namespace {

// What the kernels are built for, and what the GPU's matrix units do from there on.
constexpr int kOldestGpu = 75;
constexpr int kFirstWithBFloat16 = 80;

std::string InWords(int compute_capability) {
  return absl::StrCat(compute_capability / 10, ".", compute_capability % 10);
}

ChosenDevice Cpu(const std::string& why) {
  return {&CpuDevice(), 0, absl::StrCat("device: cpu", why.empty() ? "" : ": ", why)};
}

ChosenDevice Gpu(int index) {
  Device& device = CudaDevice(index);
  const CudaDescription description = DescribeCudaDevice(index);
  Require(description.compute_capability >= kOldestGpu, device.name(), " (", ToString(description),
          ") is too old: Pando needs compute capability ", InWords(kOldestGpu));
  return {&device, description.compute_capability,
          absl::StrCat("device: ", device.name(), " (", ToString(description), ")")};
}

ChosenDevice GpuOf(int local_rank) { return Gpu(local_rank % std::max(1, CudaDeviceCount())); }

ChosenDevice BestDevice(int local_rank) {
  std::string why;
  try {
    why = WhyNoCuda();
    if (why.empty()) return GpuOf(local_rank);
  } catch (const Error& e) {
    why = e.what();
  }
  return Cpu(why);
}

}  // namespace

ChosenDevice ChooseDevice(const std::string& option, int local_rank) {
  if (option == "auto") return BestDevice(local_rank);
  if (option == "cpu") return Cpu("");
  if (option == "cuda") return GpuOf(local_rank);
  absl::string_view rest = option;
  int index = 0;
  const bool good =
      absl::ConsumePrefix(&rest, "cuda:") && !rest.empty() && absl::SimpleAtoi(rest, &index);
  Require(good && index >= 0, "--device ", option, ": must be auto, cpu, cuda or cuda:N");
  return Gpu(index);
}

namespace {
SlowedStats emulation;
}  // namespace

ChosenDevice Emulate(const ChosenDevice& chosen, const EmulationOptions& options) {
  if (options.speed == 1 && options.jitter == 0) return chosen;
  Require(chosen.device->type() == DeviceType::kCpu,
          "--emulate-speed is for the CPU: give --device cpu");
  SetNumThreads(1);
  SlowedOptions slowed;
  slowed.speed = options.speed;
  slowed.jitter = options.jitter;
  slowed.seed = static_cast<uint64_t>(getpid());
  // Devices live as long as the process.
  static Device* device = nullptr;
  device = NewSlowedDevice(slowed, &emulation).release();
  return {device, 0, absl::StrCat(chosen.note, ", emulated at ", options.speed, " of its speed")};
}

std::string EmulationReport() {
  if (emulation.emulated == 0) return "";
  return absl::StrFormat("emulated: kernels took %.1f s, %.1f s of the processor; overrun %.2f %%",
                         emulation.emulated, emulation.used,
                         100 * emulation.overrun / emulation.emulated);
}

Precision ChoosePrecision(const std::string& option, const ChosenDevice& chosen) {
  const int capability = chosen.compute_capability;
  const std::string name = chosen.device->name();
  if (option == "f32") return {};
  if (option == "bf16" && capability == 0) return {DType::kBF16};
  Require(capability > 0, "--precision ", option,
          ": the CPU computes in f32 and bf16 only: give one of these, or --device cuda");
  if (option == "f16") return {DType::kF16};
  Require(capability >= kFirstWithBFloat16, "--precision ", option, ": ", name,
          " has compute capability ", InWords(capability), ", and this needs ",
          InWords(kFirstWithBFloat16), ": give f16 or f32");
  return option == "bf16" ? Precision{DType::kBF16} : Precision{DType::kF32, /*tf32=*/true};
}

}  // namespace pando
