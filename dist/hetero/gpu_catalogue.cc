#include "dist/hetero/gpu_catalogue.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pando {
namespace {

constexpr double kGB = 1e9, kTera = 1e12;
// Of 16 lanes, one direction.
constexpr double kPcie3 = 15.75e9, kPcie4 = 31.5e9, kPcie5 = 63e9;

}  // namespace

const std::vector<GpuModel>& GpuCatalogue() {
  static const std::vector<GpuModel> catalogue = {
      {"T4", 16 * kGB, 320e9, 65 * kTera, 0, 8.1 * kTera, kPcie3, 75,
       "NVIDIA T4 data sheet (2019)"},
      {"V100-16", 16 * kGB, 900e9, 125 * kTera, 0, 15.7 * kTera, 150e9, 70,
       "NVIDIA V100 data sheet (2020), SXM2"},
      {"V100S-32", 32 * kGB, 1134e9, 130 * kTera, 0, 16.4 * kTera, kPcie3, 70,
       "NVIDIA V100 data sheet (2020), V100S PCIe"},
      {"A10", 24 * kGB, 600e9, 125 * kTera, 62.5 * kTera, 31.2 * kTera, kPcie4, 86,
       "NVIDIA A10 data sheet (2021)"},
      {"L4", 24 * kGB, 300e9, 121 * kTera, 60 * kTera, 30.3 * kTera, kPcie4, 89,
       "NVIDIA L4 data sheet (2023), rates without sparsity"},
      {"L40S", 48 * kGB, 864e9, 362 * kTera, 183 * kTera, 91.6 * kTera, kPcie4, 89,
       "NVIDIA L40S data sheet (2023)"},
      {"A100-40", 40 * kGB, 1555e9, 312 * kTera, 156 * kTera, 19.5 * kTera, 300e9, 80,
       "NVIDIA A100 data sheet (2020), SXM"},
      {"A100-80", 80 * kGB, 2039e9, 312 * kTera, 156 * kTera, 19.5 * kTera, 300e9, 80,
       "NVIDIA A100 data sheet (2021), SXM"},
      {"A800-80", 80 * kGB, 2039e9, 312 * kTera, 156 * kTera, 19.5 * kTera, 200e9, 80,
       "as A100-80, with NVLink of 400 GB/s in both directions together"},
      {"H100", 80 * kGB, 3350e9, 989 * kTera, 494.7 * kTera, 67 * kTera, 450e9, 90,
       "NVIDIA H100 data sheet (2023), SXM, rates without sparsity"},
      {"H200", 141 * kGB, 4800e9, 989 * kTera, 494.7 * kTera, 67 * kTera, 450e9, 90,
       "NVIDIA H200 data sheet (2024), SXM, rates without sparsity"},
      {"B200", 180 * kGB, 7700e9, 2250 * kTera, 1125 * kTera, 75 * kTera, 900e9, 100,
       "NVIDIA HGX B200 data sheet (2024), an eighth, rates without sparsity"},
      {"RTX-3060", 12 * kGB, 360e9, 25.5 * kTera, 12.7 * kTera, 12.7 * kTera, kPcie4, 86,
       "GeForce RTX 3060 specifications; NVIDIA GA102 whitepaper (2021), scaled by its 28 "
       "multiprocessors"},
      {"RTX-3090", 24 * kGB, 936e9, 71 * kTera, 35.6 * kTera, 35.6 * kTera, kPcie4, 86,
       "NVIDIA GA102 whitepaper (2021)"},
      {"RTX-4090", 24 * kGB, 1008e9, 165.2 * kTera, 82.6 * kTera, 82.6 * kTera, kPcie4, 89,
       "NVIDIA Ada GPU architecture whitepaper (2022)"},
      {"RTX-5090", 32 * kGB, 1792e9, 209.5 * kTera, 104.8 * kTera, 104.8 * kTera, kPcie5, 120,
       "NVIDIA RTX Blackwell GPU architecture whitepaper (2025)"},
      {"A6000", 48 * kGB, 768e9, 154.8 * kTera, 77.4 * kTera, 38.7 * kTera, kPcie4, 86,
       "NVIDIA RTX A6000 data sheet (2021), rates without sparsity"},
  };
  return catalogue;
}

absl::StatusOr<const GpuModel*> FindGpu(const std::string& name) {
  const std::vector<GpuModel>& all = GpuCatalogue();
  const auto found = std::find_if(all.begin(), all.end(), [&](const GpuModel& g) {
    return absl::EqualsIgnoreCase(g.name, name);
  });
  if (found != all.end()) return &*found;
  return absl::InvalidArgumentError(absl::StrCat(
      "no GPU called ", name, " is known; there are ",
      absl::StrJoin(all, ", ", [](std::string* out, const GpuModel& g) { *out += g.name; })));
}

}  // namespace pando
