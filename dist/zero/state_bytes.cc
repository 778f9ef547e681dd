#include "dist/zero/state_bytes.h"

namespace pando {

int64_t ZeroStateBytes(int stage, DType dtype, int64_t size, int64_t own) {
  if (stage == 0) own = size;
  const int64_t values = (stage < 3 ? size : own) * SizeOf(dtype);
  const int64_t grads = (stage < 2 ? size : own) * int64_t{sizeof(float)};
  const int64_t masters = dtype == DType::kF32 ? 0 : own * int64_t{sizeof(float)};
  return values + grads + masters + own * int64_t{2 * sizeof(float)};
}

}  // namespace pando
