#include "engine/cpu/isa.h"

#include <cstdlib>
#include <cstring>

#include "engine/error.h"

namespace pando {
namespace {

IsaLevel Detect() {
  __builtin_cpu_init();
  IsaLevel level = IsaLevel::kV2;
  if (!__builtin_cpu_supports("x86-64-v2")) {
    throw DeviceError("this processor lacks x86-64-v2 (SSE4.2), which Pando needs");
  }
  if (__builtin_cpu_supports("x86-64-v3")) level = IsaLevel::kV3;
  if (__builtin_cpu_supports("x86-64-v4")) level = IsaLevel::kV4;
  const char* limit = std::getenv("PANDO_ISA_LEVEL");
  if (limit != nullptr && level > IsaLevel::kV2 && std::strcmp(limit, "2") == 0) {
    level = IsaLevel::kV2;
  }
  if (limit != nullptr && level > IsaLevel::kV3 && std::strcmp(limit, "3") == 0) {
    level = IsaLevel::kV3;
  }
  return level;
}

}  // namespace

IsaLevel CurrentIsaLevel() {
  static const IsaLevel level = Detect();
  return level;
}

}  // namespace pando
