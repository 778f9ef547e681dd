#include "engine/cpu/isa.h"
#include "engine/error.h"
#include "ops/cpu/matmul_cpu.h"
#include "ops/cpu/onednn_matmul.h"
#include "ops/cpu/tiled_accumulate.h"

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

enum class Method { kPacked, kOneDnn, kTiledAccumulate };

// By shape, dtype and processor alone, never by timing, so that every run computes the same.
Method MethodFor(const MatmulArgs& args) {
  const bool empty = args.batch == 0 || args.m == 0 || args.n == 0 || args.k == 0;
  if (empty || !OneDnnCanMultiply(args)) return Method::kPacked;
  return UsesTiledAccumulate(args) ? Method::kTiledAccumulate : Method::kOneDnn;
}

int64_t ScratchBytes(const MatmulArgs& args) {
  switch (MethodFor(args)) {
    case Method::kTiledAccumulate:
      return TiledAccumulateScratchBytes(args);
    case Method::kOneDnn:
      return OneDnnScratchBytes(args);
    case Method::kPacked:
      break;
  }
  return CpuPackedMatmulKernels().scratch_bytes(args);
}

void Matmul(const MatmulArgs& args, void* stream) {
  Require(args.scratch_bytes >= ScratchBytes(args), "matmul: ", args.scratch_bytes,
          " bytes of scratch where ", ScratchBytes(args), " are needed");
  switch (MethodFor(args)) {
    case Method::kTiledAccumulate:
      TiledAccumulate(args);
      break;
    case Method::kOneDnn:
      OneDnnMultiply(args);
      break;
    case Method::kPacked:
      CpuPackedMatmulKernels().matmul(args, stream);
      break;
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
