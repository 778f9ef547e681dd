#include "engine/cpu/isa.h"
#include "engine/error.h"
#include "ops/cpu/matmul_cpu.h"
#include "ops/cpu/onednn_matmul.h"

namespace pando {

namespace isa_v2 {
extern const MatmulKernels kPackedMatmul;
}
namespace isa_v3 {
extern const MatmulKernels kPackedMatmul;
}
namespace isa_v4 {
extern const MatmulKernels kPackedMatmul;
}

namespace {

bool UsesOneDnn(const MatmulArgs& args) {
  const bool empty = args.batch == 0 || args.m == 0 || args.n == 0 || args.k == 0;
  return !empty && OneDnnCanMultiply(args);
}

int64_t ScratchBytes(const MatmulArgs& args) {
  return UsesOneDnn(args) ? OneDnnScratchBytes(args) : CpuPackedMatmulKernels().scratch_bytes(args);
}

void Matmul(const MatmulArgs& args, void* stream) {
  Require(args.scratch_bytes >= ScratchBytes(args), "matmul: ", args.scratch_bytes,
          " bytes of scratch where ", ScratchBytes(args), " are needed");
  if (UsesOneDnn(args)) {
    OneDnnMultiply(args);
  } else {
    CpuPackedMatmulKernels().matmul(args, stream);
  }
}

}  // namespace

const MatmulKernels& CpuPackedMatmulKernels() {
  static const MatmulKernels& table =
      SelectIsa(isa_v2::kPackedMatmul, isa_v3::kPackedMatmul, isa_v4::kPackedMatmul);
  return table;
}

const MatmulKernels& CpuMatmulKernels() {
  static const MatmulKernels table = {.matmul = Matmul, .scratch_bytes = ScratchBytes};
  return table;
}

}  // namespace pando
