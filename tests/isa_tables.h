#pragma once

// Kernel tests run on every instruction-set level that the processor has, not on the best alone.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/cpu/isa.h"

namespace pando {

/// One instruction-set level's instance of a kernel table.
template <typename Table>
struct IsaTable {
  const char* level;
  const Table* table;
};

/// Those of three instances that this processor can run.
template <typename Table>
std::vector<IsaTable<Table>> AvailableTables(const Table& v2, const Table& v3, const Table& v4) {
  std::vector<IsaTable<Table>> tables = {{"v2", &v2}};
  if (CurrentIsaLevel() >= IsaLevel::kV3) tables.push_back({"v3", &v3});
  if (CurrentIsaLevel() >= IsaLevel::kV4) tables.push_back({"v4", &v4});
  return tables;
}

/// Names a value-parameterised test after the level.
template <typename Info>
std::string IsaTestName(const Info& info) {
  return info.param.level;
}

}  // namespace pando

/// Declares the instances of table `name` of type `Type` and instantiates the TEST_P suite `Suite`
/// (derived from testing::TestWithParam<IsaTable<Type>>) with each. Use inside namespace pando.
#define PANDO_INSTANTIATE_ISA_TABLES(Suite, Type, name)                                   \
  namespace isa_v2 {                                                                      \
  extern const Type name;                                                                 \
  }                                                                                       \
  namespace isa_v3 {                                                                      \
  extern const Type name;                                                                 \
  }                                                                                       \
  namespace isa_v4 {                                                                      \
  extern const Type name;                                                                 \
  }                                                                                       \
  INSTANTIATE_TEST_SUITE_P(                                                               \
      Isa, Suite,                                                                         \
      testing::ValuesIn(AvailableTables<Type>(isa_v2::name, isa_v3::name, isa_v4::name)), \
      [](const auto& info) { return IsaTestName(info); })
