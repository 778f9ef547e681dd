// The CPU's vector kernels, on every instruction-set level.
#include <gtest/gtest.h>

#include "engine/cpu/cpu_device.h"
#include "tests/engine/vector_kernels_suite.h"
#include "tests/isa_tables.h"

namespace pando {

namespace isa_v2 {
extern const VectorKernels kVectorKernels;
}
namespace isa_v3 {
extern const VectorKernels kVectorKernels;
}
namespace isa_v4 {
extern const VectorKernels kVectorKernels;
}

namespace {

std::vector<VectorKernelsCase> CpuCases() {
  std::vector<VectorKernelsCase> cases;
  for (const auto& t : AvailableTables<VectorKernels>(
           isa_v2::kVectorKernels, isa_v3::kVectorKernels, isa_v4::kVectorKernels)) {
    cases.push_back({t.level, &CpuDevice(), t.table});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Isa, VectorKernelsTest, testing::ValuesIn(CpuCases()),
                         VectorKernelsCaseName);

}  // namespace
}  // namespace pando
