// The head of a language model in chunks: the same numbers as without, in less memory.
#include "ops/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/allocator.h"
#include "engine/cpu/cpu_device.h"
#include "engine/tape.h"
#include "ops/linear.h"
#include "tests/ops/op_evaluate.h"

namespace pando {
namespace {

OpCase HeadInputs(int64_t rows, int64_t width, int64_t columns) {
  return {.name = "head",
          .inputs = {Spread({rows, width}, -1, 1, 1), Spread({columns, width}, -1, 1, 2)}};
}

std::vector<int32_t> Targets(int64_t rows, int64_t vocab) {
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<int32_t>(r * 31 % vocab));
  return targets;
}

TEST(LinearCrossEntropyTest, OneChunkIsTheUnchunkedPathToTheBit) {
  const OpCase c = HeadInputs(19, 24, 40);
  const std::vector<int32_t> targets = Targets(19, 37);
  const CrossEntropyOptions options{.vocab = 37, .scale = 1.0 / 19};
  const auto ids = [&targets](const Tensor& x) { return Constant(targets, {19}, x.device()); };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool direct : {false, true}) {
      const EvaluateOptions how{.dtype = dtype, .direct_loss = direct};
      const Evaluation want = Evaluate(
          c,
          [&](const std::vector<Tensor>& x) {
            return std::vector<Tensor>{CrossEntropyInPlace(
                Linear(x[0], x[1], Tensor(), WeightLayout::kOutIn), ids(x[0]), options)};
          },
          how);
      for (const int64_t chunk : {0, 19, 20}) {
        ExpectSame(Evaluate(
                       c,
                       [&](const std::vector<Tensor>& x) {
                         return std::vector<Tensor>{LinearCrossEntropy(
                             x[0], x[1], ids(x[0]), {.loss = options, .chunk_rows = chunk})};
                       },
                       how),
                   want, absl::StrCat("chunks of ", chunk));
      }
    }
  }
}

// Losses are those of the same logits, summed in the same order; only products may differ in how
// they sum, which f64 makes small.
TEST(LinearCrossEntropyTest, ChunksChangeNothing) {
  const OpCase c = HeadInputs(23, 8, 30);
  const std::vector<int32_t> targets = Targets(23, 30);
  const auto run = [&](int64_t chunk, bool direct) {
    return Evaluate(c,
                    [&](const std::vector<Tensor>& x) {
                      return std::vector<Tensor>{
                          LinearCrossEntropy(x[0], x[1], Constant(targets, {23}, x[0].device()),
                                             {.loss = {.scale = 0.5}, .chunk_rows = chunk})};
                    },
                    {.direct_loss = direct});
  };
  for (const bool direct : {false, true}) {
    const Evaluation want = run(23, direct);
    for (const int64_t chunk : {1, 5, 22}) {
      const Evaluation got = run(chunk, direct);
      const Bound close = {.compute = 16, .floor = 1};
      ExpectWithin(got.outputs[0], want.outputs[0], close, DType::kF64, "loss");
      for (size_t i = 0; i < 2; ++i) {
        ExpectWithin(got.gradients[i], want.gradients[i], close, DType::kF64, "gradient");
      }
    }
  }
}

/// The most that is in use at once beyond the inputs, forward and (if recorded) backward.
int64_t PeakBytes(int64_t rows, int64_t width, int64_t columns, int64_t chunk, bool record) {
  const std::unique_ptr<Device> device = NewDeferredCpuDevice(1);
  const std::vector<int32_t> targets = Targets(rows, columns);
  Tensor x = Tensor::Zeros({rows, width}, DType::kF32, *device);
  Tensor weight = Tensor::Zeros({columns, width}, DType::kF32, *device);
  const Tensor ids = Constant(targets, {rows}, *device);
  if (record) {
    x.RequireGrad();
    weight.RequireGrad();
  }
  device->allocator().ResetPeak();
  const int64_t before = device->allocator().stats().in_use;
  const Tensor loss = LinearCrossEntropy(x, weight, ids, {.chunk_rows = chunk});
  if (record) Backward(loss);
  device->Synchronize();
  const int64_t peak = device->allocator().stats().peak_in_use - before;
  Tape::Current().Clear();
  return peak;
}

TEST(LinearCrossEntropyTest, NeverHoldsAllLogits) {
  constexpr int64_t kRows = 4096, kWidth = 16, kColumns = 512, kChunk = 256;
  constexpr int64_t kAll = kRows * kColumns * 4, kOfChunk = kChunk * kColumns * 4;
  EXPECT_GE(PeakBytes(kRows, kWidth, kColumns, 0, false), kAll);
  EXPECT_GE(PeakBytes(kRows, kWidth, kColumns, 0, true), kAll);
  // Beside the chunk: losses, and what products take as scratch (measured: half a MiB).
  constexpr int64_t kRest = int64_t{1} << 20;
  EXPECT_LT(PeakBytes(kRows, kWidth, kColumns, kChunk, false), kOfChunk + kRest);
  // Both gradients, dx of x's size and dW.
  constexpr int64_t kGradients = (kRows + kColumns) * kWidth * 4;
  EXPECT_LT(PeakBytes(kRows, kWidth, kColumns, kChunk, true), kOfChunk + 2 * kGradients + kRest);
  static_assert(kOfChunk + 2 * kGradients + kRest < kAll / 3);
}

TEST(LinearCrossEntropyTest, ChunksFit512MiB) {
  EXPECT_EQ(LossChunkRows(256, 50304, 4), 256);     // a CPU's batch of 4 x 64
  EXPECT_EQ(LossChunkRows(5336, 50304, 2), 5336);   // 512 MiB hold 5336.6 such rows
  EXPECT_EQ(LossChunkRows(5337, 50304, 2), 2688);   // two of 2668.5, to multiples of 128
  EXPECT_EQ(LossChunkRows(65536, 50304, 2), 5120);  // 12.3 times too many: 13 of 5041.2
  EXPECT_EQ(LossChunkRows(0, 50304, 2), 0);
  EXPECT_EQ(LossChunkRows(100, int64_t{1} << 40, 4), 100) << "a row is more than a chunk";
  EXPECT_GT(LossChunkRows(int64_t{1} << 50, int64_t{1} << 40, 4), 0);
}

}  // namespace
}  // namespace pando
