#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/bounded_cache.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"
#include "ops/cpu/matmul_cpu.h"
#include "ops/kernels/matmul.h"
#include "tests/ops/matmul_problem.h"

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

struct NamedTable {
  std::string name;
  const MatmulKernels* table;
};

// What the CPU uses, and our own kernel at each level that this processor has.
std::vector<NamedTable> Tables() {
  std::vector<NamedTable> tables = {{"chosen", &CpuMatmulKernels()},
                                    {"packed_v2", &isa_v2::kPackedMatmul}};
  if (CurrentIsaLevel() >= IsaLevel::kV3) tables.push_back({"packed_v3", &isa_v3::kPackedMatmul});
  if (CurrentIsaLevel() >= IsaLevel::kV4) tables.push_back({"packed_v4", &isa_v4::kPackedMatmul});
  return tables;
}

class MatmulKernelTest : public testing::TestWithParam<NamedTable> {
 protected:
  const MatmulKernels& kernels() const { return *GetParam().table; }
};

INSTANTIATE_TEST_SUITE_P(Cpu, MatmulKernelTest, testing::ValuesIn(Tables()),
                         [](const auto& info) { return info.param.name; });

// Scratch of the size asked for, full of NaN and with a guard behind it.
class Scratch {
 public:
  explicit Scratch(int64_t bytes)
      : bytes_(bytes), data_(static_cast<char*>(std::aligned_alloc(256, (bytes / 256 + 2) * 256))) {
    std::memset(data_.get(), 0xFF, (bytes / 256 + 2) * 256);
  }
  void* data() { return bytes_ == 0 ? nullptr : data_.get(); }
  bool GuardIntact() const {
    for (int64_t i = bytes_; i < bytes_ + 64; ++i) {
      if (data_.get()[i] != static_cast<char>(0xFF)) return false;
    }
    return true;
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  int64_t bytes_;
  std::unique_ptr<char, Free> data_;
};

void Multiply(MatmulProblem& problem, const MatmulKernels& kernels) {
  MatmulArgs& args = problem.args;
  args.a = problem.a.data();
  args.b = problem.b.data();
  args.c = problem.c.data();
  args.bias = problem.with_bias ? problem.bias.data() : nullptr;
  args.scratch_bytes = kernels.scratch_bytes(args);
  Scratch scratch(args.scratch_bytes);
  args.scratch = scratch.data();
  kernels.matmul(args, nullptr);
  EXPECT_TRUE(scratch.GuardIntact()) << "wrote past its scratch";
}

void CheckAll(const MatmulKernels& kernels, DTypes dtypes, MatmulShape shape, int64_t batch) {
  CheckAllForms([&](MatmulProblem& p) { Multiply(p, kernels); }, dtypes, shape, batch);
}

TEST_P(MatmulKernelTest, SmallAndOddSizes) {
  const MatmulShape shapes[] = {{1, 1, 1},   {1, 7, 5},    {7, 1, 3},    {13, 1, 1},   {2, 3, 257},
                                {1, 67, 64}, {13, 17, 19}, {64, 48, 32}, {25, 33, 513}};
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const MatmulShape& shape : shapes) CheckAll(kernels(), dtypes, shape, 1);
  }
}

// More than one block and more than one thread's task in each dimension.
TEST_P(MatmulKernelTest, SizesBeyondOneBlock) {
  const MatmulShape shapes[] = {{967, 5, 3}, {3, 2053, 4}, {101, 523, 67}};
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const MatmulShape& shape : shapes) CheckAll(kernels(), dtypes, shape, 1);
  }
}

// Large enough for blocks of rows, with a last block of its own size.
TEST_P(MatmulKernelTest, LargeWeightGradients) {
  for (const DTypes& dtypes :
       {DTypes{DType::kBF16, DType::kF32}, DTypes{DType::kF32, DType::kF32}}) {
    MatmulArgs args = MatmulOptionsOf(dtypes, {961, 1203, 5});
    args.transpose_a = true;
    args.accumulate = true;
    MatmulProblem problem(args, 0);
    Multiply(problem, kernels());
    problem.Check();
  }
}

TEST_P(MatmulKernelTest, Batches) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    CheckAll(kernels(), dtypes, {5, 6, 7}, 3);
    CheckAll(kernels(), dtypes, {33, 16, 40}, 2);
  }
}

// A stride of 0 repeats a matrix.
TEST_P(MatmulKernelTest, OneMatrixForAWholeBatch) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const bool repeat_a : {false, true}) {
      MatmulProblem problem(MatmulOptionsOf(dtypes, {9, 11, 13}, 3), 0);
      (repeat_a ? problem.args.stride_a : problem.args.stride_b) = 0;
      Multiply(problem, kernels());
      problem.Check();
    }
  }
}

TEST_P(MatmulKernelTest, EmptySizes) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    for (const MatmulShape& shape :
         {MatmulShape{0, 3, 4}, MatmulShape{3, 0, 4}, MatmulShape{3, 4, 0}}) {
      CheckAll(kernels(), dtypes, shape, 1);
      CheckAll(kernels(), dtypes, shape, 2);
    }
    MatmulProblem none(MatmulOptionsOf(dtypes, {3, 4, 5}), 0);
    none.args.batch = 0;
    Multiply(none, kernels());
    EXPECT_TRUE(none.c == none.c_before);
  }
}

TEST_P(MatmulKernelTest, RepeatsToTheBit) {
  for (const DTypes& dtypes : kMatmulDTypes) {
    MatmulProblem first(MatmulOptionsOf(dtypes, {130, 300, 700}), 0);
    MatmulProblem second = first;
    Multiply(first, kernels());
    Multiply(second, kernels());
    EXPECT_TRUE(first.c == second.c) << Name(dtypes.input);
  }
}

TEST_P(MatmulKernelTest, RefusesDTypesThatDoNotFit) {
  for (const DTypes& dtypes :
       {DTypes{DType::kF32, DType::kBF16}, DTypes{DType::kBF16, DType::kF16},
        DTypes{DType::kF64, DType::kF32}, DTypes{DType::kI32, DType::kI32}}) {
    MatmulArgs args = MatmulOptionsOf(dtypes, {1, 1, 1});
    args.lda = args.ldb = args.ldc = 1;
    double a = 0, b = 0, c = 0;
    args.a = &a;
    args.b = &b;
    args.c = &c;
    Scratch scratch(1 << 16);
    args.scratch = scratch.data();
    args.scratch_bytes = 1 << 16;
    EXPECT_THROW(kernels().matmul(args, nullptr), InvalidArgument)
        << Name(dtypes.input) << " to " << Name(dtypes.output);
  }
}

TEST(PackedMatmulTest, DoesNotDependOnThreads) {
  const int threads = NumThreads();
  for (const DTypes& dtypes : kMatmulDTypes) {
    MatmulProblem one(MatmulOptionsOf(dtypes, {200, 1100, 600}), 0);
    MatmulProblem three = one;
    SetNumThreads(1);
    Multiply(one, CpuPackedMatmulKernels());
    SetNumThreads(3);
    Multiply(three, CpuPackedMatmulKernels());
    EXPECT_TRUE(one.c == three.c) << Name(dtypes.input);
  }
  SetNumThreads(threads);
}

TEST(CpuMatmulTest, MakesAPrimitiveOnceForEachProduct) {
  const auto run = [](int64_t k) {
    MatmulArgs args = MatmulOptionsOf({DType::kF32, DType::kF32}, {21, 22, k});
    args.transpose_b = true;  // for a plain B there is no primitive
    MatmulProblem problem(args, 0);
    Multiply(problem, CpuMatmulKernels());
  };
  run(40);
  const int64_t before = bounded_cache_creations.load();
  run(40);
  EXPECT_EQ(bounded_cache_creations.load(), before);
  run(41);
  EXPECT_EQ(bounded_cache_creations.load(), before + 1);
}

TEST(CpuMatmulTest, RefusesTooLittleScratch) {
  MatmulProblem problem(MatmulOptionsOf({DType::kF64, DType::kF64}, {3, 4, 5}), 0);
  problem.args.a = problem.a.data();
  problem.args.b = problem.b.data();
  problem.args.c = problem.c.data();
  EXPECT_THROW(CpuMatmulKernels().matmul(problem.args, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace pando
