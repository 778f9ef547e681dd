#pragma once

// Kernels on the CPU are compiled once per instruction-set level, from one source, each time in a
// namespace of its own (PANDO_ISA: isa_v2, isa_v3, isa_v4; see isa.bzl). At start-up the highest
// level that this processor has is chosen for all of them.

namespace pando {

/// x86-64 micro-architecture levels, as the psABI names them.
enum class IsaLevel { kV2 = 2, kV3 = 3, kV4 = 4 };

/// The level in use: what the processor has, or less if PANDO_ISA_LEVEL=2|3 is set in the
/// environment. Throws DeviceError below v2.
IsaLevel CurrentIsaLevel();

/// Picks the table compiled for the level in use.
template <typename Table>
const Table& SelectIsa(const Table& v2, const Table& v3, const Table& v4) {
  switch (CurrentIsaLevel()) {
    case IsaLevel::kV4:
      return v4;
    case IsaLevel::kV3:
      return v3;
    case IsaLevel::kV2:
      break;
  }
  return v2;
}

}  // namespace pando

/// Declares the three instances of table `name` of type `Type`, and `const Type& Cpu##Type()` that
/// picks one. Use inside namespace pando, in the .cc beside the kernels (compiled once, plainly).
#define PANDO_DEFINE_CPU_TABLE(Type, name)                                                \
  namespace isa_v2 {                                                                      \
  extern const Type name;                                                                 \
  }                                                                                       \
  namespace isa_v3 {                                                                      \
  extern const Type name;                                                                 \
  }                                                                                       \
  namespace isa_v4 {                                                                      \
  extern const Type name;                                                                 \
  }                                                                                       \
  const Type& Cpu##Type() {                                                               \
    static const Type& table = SelectIsa<Type>(isa_v2::name, isa_v3::name, isa_v4::name); \
    return table;                                                                         \
  }                                                                                       \
  static_assert(true, "")
