// No operation goes untested: the table covers exactly what the public headers declare.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "tests/ops/op_table.h"

namespace pando {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Names of functions declared at the start of a line: "Tensor Add(const Tensor& a, ...", whatever
/// they return.
std::set<std::string> FunctionsIn(const std::string& header) {
  std::set<std::string> names;
  std::istringstream lines(header);
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find('(');
    if (end == std::string::npos || !absl::ascii_isalpha(line[0])) continue;
    size_t start = end;
    while (start > 0 && absl::ascii_isalnum(line[start - 1])) --start;
    const bool returns = start > 0 && std::string(" &*>").find(line[start - 1]) < 4;
    if (returns && absl::ascii_isupper(line[start])) names.insert(line.substr(start, end - start));
  }
  return names;
}

/// Public headers of operations are this test's data.
std::set<std::string> DeclaredOperations() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator("ops")) {
    if (file.path().extension() == ".h") names.merge(FunctionsIn(ReadFile(file.path())));
  }
  return names;
}

std::set<std::string> CoveredOperations() {
  std::set<std::string> names;
  for (const OpEntry& e : OpTable()) names.insert(e.covers.begin(), e.covers.end());
  return names;
}

TEST(OpCompleteness, EveryDeclaredOperationIsInTheTable) {
  const std::set<std::string> declared = DeclaredOperations(), covered = CoveredOperations();
  ASSERT_GE(declared.size(), 40u) << "the headers were not found, or not understood";
  for (const std::string& name : declared) {
    EXPECT_TRUE(covered.count(name)) << name << " is declared in ops/ but not in the table: add it "
                                     << "to one of tests/ops/op_table_*.cc";
  }
}

TEST(OpCompleteness, EveryEntryIsDeclared) {
  std::set<std::string> declared = DeclaredOperations();
  declared.insert("Reshape");  // the one that is a method of Tensor
  for (const std::string& name : CoveredOperations()) {
    EXPECT_TRUE(declared.count(name)) << name << " is in the table but declared nowhere";
  }
}

TEST(OpCompleteness, EntriesHaveCasesErrorsAndReasons) {
  std::set<std::string> names;
  for (const OpEntry& e : OpTable()) {
    EXPECT_TRUE(names.insert(e.name).second) << e.name << " stands twice in the table";
    EXPECT_GE(e.cases.size(), 2u) << e.name;
    EXPECT_FALSE(e.errors.empty()) << e.name;
    EXPECT_FALSE(e.why.empty()) << e.name << ": say where the bounds come from";
    std::set<std::string> cases;
    for (const OpCase& c : e.cases) {
      EXPECT_TRUE(cases.insert(c.name).second) << e.name << " " << c.name << " stands twice";
    }
  }
}

TEST(OpCompleteness, DeclarationsAreUnderstood) {
  EXPECT_EQ(FunctionsIn("Tensor Add(const Tensor& a);\n  Tensor Hidden(int);\n/// Tensor No(int).\n"
                        "ResidualLayerNormResult B(int,\n    int);\nstd::vector<Tensor> C(int);\n"
                        "std::pair<Tensor, Tensor> D(int);\nconst Tensor& E(int);\n#define NO(x)\n"
                        "using No = std::function<No(int)>;\nstruct No {\n  int no();\n};\n"),
            (std::set<std::string>{"Add", "B", "C", "D", "E"}));
}

}  // namespace
}  // namespace pando
