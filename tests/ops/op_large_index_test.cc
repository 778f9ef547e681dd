// Operations on tensors of more than 2^31 elements, where 32-bit products overflow. Memory that is
// only read stays the system's one page of zeros, so that at most one tensor of 4 GiB is real.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "engine/allocator.h"
#include "engine/cpu/cpu_device.h"
#include "engine/module.h"
#include "engine/parameter.h"
#include "engine/tape.h"
#include "ops/arithmetic.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace pando {
namespace {

/// Bytes that the system could still give.
int64_t AvailableMemory() {
  std::ifstream info("/proc/meminfo");
  std::string word;
  while (info >> word) {
    if (word == "MemAvailable:") {
      int64_t kib = 0;
      info >> kib;
      return kib * 1024;
    }
  }
  return 0;
}

class LargeIndexTest : public testing::Test {
 protected:
  void SetUp() override {
    if (AvailableMemory() < (int64_t{12} << 30)) {
      GTEST_SKIP() << "needs 12 GiB of available memory";
    }
  }
  void TearDown() override {
    Tape::Current().Clear();
    CpuDevice().allocator().ReleaseCached();
  }
  /// Fresh from the system: zeros that nobody has touched.
  static Tensor Untouched(Shape shape, DType dtype) {
    CpuDevice().allocator().ReleaseCached();
    return Tensor::Empty(std::move(shape), dtype, CpuDevice(), "large");
  }
};

TEST_F(LargeIndexTest, EmbeddingReadsTheLastRow) {
  constexpr int64_t kCols = 1024, kVocab = (int64_t{1} << 21) + 3;  // 2^31 + 3072 elements
  Tensor table = Untouched({kVocab, kCols}, DType::kBF16);
  auto* last = table.mutable_data<BFloat16>() + (kVocab - 1) * kCols;
  for (int64_t c = 0; c < kCols; ++c) last[c] = ToBFloat16(static_cast<float>(c % 128));
  const Tensor tokens =
      Tensor::FromHost(std::vector<int32_t>{static_cast<int32_t>(kVocab - 1)}, {1}, CpuDevice());
  const std::vector<BFloat16> row = Embedding(tokens, table).ToHost<BFloat16>();
  for (int64_t c = 0; c < kCols; ++c) ASSERT_EQ(ToFloat(row[c]), c % 128);
  CpuDevice().CheckErrorFlag();
}

// A parameter's gradient is not zeroed but added to where it holds a sum, so that of its 8 GiB only
// the rows of tokens become real.
TEST_F(LargeIndexTest, EmbeddingBackwardReachesTheLastRow) {
  constexpr int64_t kCols = 1024, kVocab = (int64_t{1} << 21) + 3;
  ParameterRegistry registry;
  Parameter table(registry.Root(), "table", {kVocab, kCols}, Initializer::Zeros(),
                  WeightDecay::kNo);
  table.Place(Untouched({kVocab, kCols}, DType::kBF16));
  table.PlaceGrad(Untouched({kVocab, kCols}, DType::kF32));
  table.StartGrad();
  // AddressSanitizer fills the first bytes of new memory.
  Tensor grad = table.grad();
  std::fill_n(grad.mutable_data<float>(), kCols, 0.0F);
  std::vector<BFloat16> weights(3 * kCols);
  for (int64_t i = 0; i < 3 * kCols; ++i) weights[i] = ToBFloat16(static_cast<float>(i % 125));
  const auto last = static_cast<int32_t>(kVocab - 1);
  const Tensor tokens = Tensor::FromHost(std::vector<int32_t>{last, 0, last}, {3}, CpuDevice());
  Backward(Sum(Mul(Embedding(tokens, table), Tensor::FromHost(weights, {3, kCols}, CpuDevice()))));
  const float* rows = table.grad().data<float>();
  const auto weight = [](int64_t row, int64_t c) {
    return static_cast<float>((row * kCols + c) % 125);
  };
  for (int64_t c = 0; c < kCols; ++c) {
    ASSERT_EQ(rows[(kVocab - 1) * kCols + c], weight(0, c) + weight(2, c));
    ASSERT_EQ(rows[c], weight(1, c));
    ASSERT_EQ(rows[(kVocab - 2) * kCols + c], 0);
  }
  CpuDevice().CheckErrorFlag();
}

// 2^16 + 1 rows of 2^15: the last row's loss and gradient lie beyond 2^31.
TEST_F(LargeIndexTest, CrossEntropyReachesTheLastRow) {
  constexpr int64_t kVocab = 1 << 15, kRows = (1 << 16) + 1;
  constexpr int64_t kTarget = kVocab - 2;
  Tensor logits = Untouched({kRows, kVocab}, DType::kBF16);
  // All logits 0 but the last row's target, which stands out by 8. (AddressSanitizer fills the
  // first bytes of new memory, so the first row is written.)
  std::fill_n(logits.mutable_data<BFloat16>(), kVocab, BFloat16{0});
  logits.mutable_data<BFloat16>()[(kRows - 1) * kVocab + kTarget] = ToBFloat16(8);
  logits.RequireGrad();
  // All other rows but the first are left out of the sum.
  std::vector<int32_t> targets(kRows, -1);
  targets.front() = 1;
  targets.back() = kTarget;
  const Tensor loss = CrossEntropyInPlace(logits, Tensor::FromHost(targets, {kRows}, CpuDevice()));
  const double others = kVocab - 1, e8 = std::exp(8.0);
  EXPECT_NEAR(loss.Item(), std::log(1.0 * kVocab) + std::log(others + e8) - 8, 1e-5);
  Backward(loss);
  const Tensor gradient = GradientOf(logits);
  const BFloat16* rows = gradient.data<BFloat16>();
  const auto expect = [](BFloat16 got, double want) {
    EXPECT_NEAR(ToFloat(got), want, std::fabs(want) * 0x1.01p-8);
  };
  expect(rows[0], 1.0 / kVocab);
  expect(rows[1], 1.0 / kVocab - 1);
  expect(rows[kVocab], 0);
  const BFloat16* last = rows + (kRows - 1) * kVocab;
  expect(last[-1], 0);
  expect(last[0], 1 / (others + e8));
  expect(last[kTarget], e8 / (others + e8) - 1);
  expect(last[kVocab - 1], 1 / (others + e8));
  CpuDevice().CheckErrorFlag();
}

TEST_F(LargeIndexTest, SliceReadsBehind31Bits) {
  constexpr int64_t kCols = 1 << 16, kRows = (1 << 15) + 5;
  Tensor x = Untouched({kRows, kCols}, DType::kBF16);
  auto* last = x.mutable_data<BFloat16>() + kRows * kCols - 2;
  last[0] = ToBFloat16(3);
  last[1] = ToBFloat16(5);
  const Tensor column = Slice(x, 1, kCols - 2, 2);
  const Tensor corner = Slice(column, 0, kRows - 1, 1);
  const std::vector<BFloat16> got = corner.ToHost<BFloat16>();
  EXPECT_EQ(ToFloat(got[0]), 3);
  EXPECT_EQ(ToFloat(got[1]), 5);
}

TEST_F(LargeIndexTest, ConcatWritesBehind31Bits) {
  constexpr int64_t kHalf = (int64_t{1} << 30) + 7;
  const Tensor zeros = Untouched({kHalf}, DType::kBF16);
  const Tensor tail =
      Tensor::FromHost(std::vector<BFloat16>{ToBFloat16(3), ToBFloat16(5)}, {2}, CpuDevice());
  const Tensor y = Concat({zeros, zeros, tail}, 0);
  const BFloat16* end = y.data<BFloat16>() + y.numel();
  EXPECT_EQ(y.numel(), 2 * kHalf + 2);
  EXPECT_EQ(ToFloat(end[-1]), 5);
  EXPECT_EQ(ToFloat(end[-2]), 3);
  EXPECT_EQ(ToFloat(end[-3]), 0);
}

}  // namespace
}  // namespace pando
