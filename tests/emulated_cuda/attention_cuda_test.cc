// Attention's kernels on an emulated GPU against attention written out in f64, in several orders of
// threads: every head dimension's kernels, shapes that end within tiles, rows that are aligned and
// that are not.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

#include "engine/cuda/cuda_device.h"
#include "engine/error.h"
#include "ops/cuda/tables.h"
#include "tests/emulated_cuda/emulated_cuda.h"
#include "tests/ops/attention_naive.h"
#include "tests/ops/attention_runner.h"
#include "tests/samples.h"

namespace pando {
namespace {

/// Orders of threads, with margins of rows: multiples of 16 bytes, and not.
constexpr uint64_t kSeeds = 5;
constexpr std::array<int64_t, kSeeds> kMargins = {8, 3, 0, 8, 5};

template <typename T>
class AttentionCudaTest : public testing::Test {
 protected:
  /// Probabilities, and their scores' gradients, are rounded to a 16-bit T before they meet values
  /// and keys: one rounding of T of every term.
  static constexpr double kTermRoundings = sizeof(T) == 2 ? UnitRoundoff<T>() : 0;

  /// As ExpectClose, with what tensor cores add.
  static void ExpectNear(const std::vector<T>& got, const std::vector<double>& want,
                         double roundings, double scale, const char* what) {
    SCOPED_TRACE(what);
    ExpectClose(got, want, roundings + kTermRoundings / UnitRoundoff<float>(), scale);
  }

  void CheckForward(const NaiveAttention& in, const RunOptions& options) {
    const ForwardResult<T> got = RunForward<T>(kCudaAttention, in, options);
    // Powers of two have an error of 4 roundings; kept terms are of at most 1 / (1 - dropout).
    const double roundings = Roundings(in) + 8;
    ExpectNear(got.out, in.out, roundings, 1 / (1 - in.shape.dropout), "out");
    for (size_t i = 0; i < in.lse.size(); ++i) {
      if (std::isinf(in.lse[i])) {
        ASSERT_EQ(got.lse[i], std::numeric_limits<float>::infinity());
      } else {
        ASSERT_NEAR(got.lse[i], in.lse[i], roundings * 0x1p-24 * (1 + std::fabs(in.lse[i])));
      }
    }
  }

  void CheckBackward(NaiveAttention& in, const RunOptions& options) {
    const Gradients<T> got = RunBackward<T>(kCudaAttention, in, options);
    const double roundings = Roundings(in) + 8;
    ExpectNear(got.dq, in.dq, roundings, MaxAbs(in.dq_terms), "dq");
    ExpectNear(got.dk, in.dk, roundings, MaxAbs(in.dk_terms), "dk");
    ExpectNear(got.dv, in.dv, roundings, MaxAbs(in.dv_terms), "dv");
  }

  /// Forward and backward in every order of threads.
  void Check(const AttentionShape& shape) {
    SCOPED_TRACE(std::to_string(shape.query_length) + " queries, " +
                 std::to_string(shape.key_length) + " keys, dim " + std::to_string(shape.head_dim) +
                 (shape.causal ? ", causal" : ", full") + (shape.dropout > 0 ? ", dropout" : ""));
    NaiveAttention in = MakeCase<T>(shape);
    HideUnseen(in);
    in.Forward();
    NaiveAttention rounded = in;
    for (double& x : rounded.out) x = ToFloat(RoundTo<T>(static_cast<float>(x)));
    rounded.Backward();
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      emulated_cuda::Configure({.seed = seed});
      const RunOptions options{.device = &CudaDevice(0), .margin = kMargins[seed - 1]};
      CheckForward(in, options);
      CheckBackward(rounded, options);
      if (this->HasFatalFailure()) return;
    }
  }

  /// NaN in everything beyond the lengths: it must never be read.
  static void HideUnseen(NaiveAttention& in) {
    const AttentionShape& s = in.shape;
    if (s.lengths == nullptr) return;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t j = s.lengths[b]; j < s.key_length; ++j) {
        for (int64_t e = 0; e < s.kv_heads * s.head_dim; ++e) {
          in.k[in.KeyAt(b, j, 0) + e] = in.v[in.KeyAt(b, j, 0) + e] = nan;
        }
      }
      for (int64_t i = 0; i < s.query_length; ++i) {
        if (i + s.key_length - s.query_length < s.lengths[b]) continue;
        for (int64_t e = 0; e < s.query_heads * s.head_dim; ++e) {
          in.q[in.QueryAt(b, i, 0) + e] = in.dout[in.QueryAt(b, i, 0) + e] = nan;
        }
      }
    }
  }
};

using ElementTypes = testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(AttentionCudaTest, ElementTypes);

TYPED_TEST(AttentionCudaTest, TilesOfEveryHeadDimension) {
  for (const int64_t dim : {1, 8, 64, 72, 128, 136, 256}) {
    const int64_t length = dim > 64 ? 37 : 70;
    this->Check(MakeShape(1, 1, 1, length, dim, dim % 16 == 0));
  }
}

TYPED_TEST(AttentionCudaTest, LengthsWithinAndBeyondTiles) {
  for (const int64_t length : {1, 2, 15, 16, 17, 63, 64, 65, 131}) {
    this->Check(MakeShape(1, 2, length % 2 == 0 ? 2 : 1, length, 16, length % 3 != 0));
  }
}

TYPED_TEST(AttentionCudaTest, QueriesAreTheLastOfTheKeys) {
  for (const auto& [queries, keys] :
       {std::array<int64_t, 2>{9, 140}, {40, 131}, {131, 40}, {70, 1}, {3, 0}, {0, 3}}) {
    for (const bool causal : {true, false}) {
      AttentionShape shape = MakeShape(1, 4, 2, keys, 8, causal);
      shape.query_length = queries;
      this->Check(shape);
    }
  }
}

TYPED_TEST(AttentionCudaTest, NothingBeyondTheLengthsIsRead) {
  const std::vector<int32_t> lengths = {70, 0, 131, 1, 64};
  for (const bool causal : {true, false}) {
    AttentionShape shape = MakeShape(5, 2, 1, 131, 8, causal);
    shape.lengths = lengths.data();
    this->Check(shape);
  }
}

// Scores that rise by 12 from one tile of keys to the next: sums are rescaled again and again.
TYPED_TEST(AttentionCudaTest, RisingScores) {
  NaiveAttention in = MakeCase<TypeParam>(MakeShape(1, 1, 1, 131, 16, true));
  for (size_t i = 0; i < in.k.size(); ++i) {
    in.q[i] = ToFloat(RoundTo<TypeParam>(static_cast<float>(0.75 + in.q[i] / 8)));
    const size_t row = i / 16;
    in.k[i] =
        ToFloat(RoundTo<TypeParam>(static_cast<float>(static_cast<double>(row) / 8 + in.k[i] / 8)));
  }
  in.Forward();
  NaiveAttention rounded = in;
  for (double& x : rounded.out) x = ToFloat(RoundTo<TypeParam>(static_cast<float>(x)));
  rounded.Backward();
  emulated_cuda::Configure({});
  this->CheckForward(in, {.device = &CudaDevice(0)});
  this->CheckBackward(rounded, {.device = &CudaDevice(0)});
}

TYPED_TEST(AttentionCudaTest, Decoding) {
  const std::vector<int32_t> lengths = {200, 0, 77};
  for (const int64_t queries : {1, 2, 5, 8}) {
    for (const int64_t dim : {1, 24, 64, 160}) {
      AttentionShape shape = MakeShape(3, 2, 2, 200, dim, dim != 24);
      if (queries == 1) shape.query_heads = 8;
      if (dim == 24) shape.lengths = lengths.data();
      shape.query_length = queries;
      NaiveAttention in = MakeCase<TypeParam>(shape);
      this->HideUnseen(in);
      in.Forward();
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        emulated_cuda::Configure({.seed = seed});
        this->CheckForward(in, {.device = &CudaDevice(0), .margin = kMargins[seed - 1]});
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST(AttentionCudaTest, Dropout) {
  const std::vector<int64_t> ids = {int64_t{1} << 35, 3};
  // Rows of the T x T matrix that begin on a block of random numbers, and that don't.
  for (const int64_t length : {72, 71}) {
    for (const int64_t dim : {16, 128}) {
      AttentionShape shape = MakeShape(2, 2, 1, length, dim, length == 72);
      shape.dropout = 0.3;
      shape.sample_ids = ids.data();
      this->Check(shape);
    }
  }
}

// With unit vectors for values, an output row is its probabilities; with unit vectors for dout, a
// row of dv is a key's. Where they are 0 must be where the CPU's draws drop.
TYPED_TEST(AttentionCudaTest, DropsWhatTheCpuDrops) {
  const std::vector<int64_t> ids = {7, int64_t{1} << 40};
  for (const int64_t length : {64, 61}) {
    AttentionShape shape = MakeShape(2, 3, 3, length, 64, false);
    shape.dropout = 0.4;
    shape.sample_ids = ids.data();
    NaiveAttention in = MakeCase<TypeParam>(shape);
    for (size_t i = 0; i < in.v.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / int64_t{192} % length;
      in.v[i] = in.dout[i] = static_cast<int64_t>(i) % 64 == row ? 1 : 0;
    }
    in.Forward();
    emulated_cuda::Configure({});
    const RunOptions options{.device = &CudaDevice(0)};
    const auto out = RunForward<TypeParam>(kCudaAttention, in, options).out;
    const auto dv = RunBackward<TypeParam>(kCudaAttention, in, options).dv;
    in.ForEachRow([&](int64_t b, int64_t h, int64_t i) {
      for (int64_t j = 0; j < length; ++j) {
        const bool kept = in.Factor(b, h, i, j) != 0;
        ASSERT_EQ(ToFloat(out[in.QueryAt(b, i, h) + j]) != 0, kept) << i << ", " << j;
        ASSERT_EQ(ToFloat(dv[in.KeyAt(b, j, h) + i]) != 0, kept) << i << ", " << j;
      }
    });
  }
}

TYPED_TEST(AttentionCudaTest, BitsDoNotDependOnTheOrderOfThreads) {
  AttentionShape shape = MakeShape(1, 4, 2, 131, 24, true);
  NaiveAttention in = MakeCase<TypeParam>(shape);
  in.Forward();
  ForwardResult<TypeParam> forward;
  Gradients<TypeParam> backward;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emulated_cuda::Configure({.seed = seed});
    const RunOptions options{.device = &CudaDevice(0)};
    const auto f = RunForward<TypeParam>(kCudaAttention, in, options);
    const auto b = RunBackward<TypeParam>(kCudaAttention, in, options);
    if (seed == 1) {
      forward = f;
      backward = b;
    }
    PANDO_EXPECT_SAME_BITS(f.out, forward.out);
    PANDO_EXPECT_SAME_BITS(f.lse, forward.lse);
    PANDO_EXPECT_SAME_BITS(b.dq, backward.dq);
    PANDO_EXPECT_SAME_BITS(b.dk, backward.dk);
    PANDO_EXPECT_SAME_BITS(b.dv, backward.dv);
  }
}

// Compute capability 7.5: 64 KiB of shared memory, no bf16.
TEST(AttentionCuda, RunsOnTuringInF16) {
  emulated_cuda::Configure({.compute_capability = 75});
  const RunOptions options{.device = &CudaDevice(0), .margin = 8};
  for (const int64_t dim : {64, 128, 256}) {
    NaiveAttention in = MakeCase<Float16>(MakeShape(1, 1, 1, 33, dim, true));
    in.Forward();
    RunForward<Float16>(kCudaAttention, in, options);
    RunBackward<Float16>(kCudaAttention, in, options);
    if (dim == 256) {
      EXPECT_THROW(RunBackward<float>(kCudaAttention, in, options), InvalidArgument);
    } else {
      RunForward<float>(kCudaAttention, in, options);
      RunBackward<float>(kCudaAttention, in, options);
    }
    EXPECT_THROW(RunForward<BFloat16>(kCudaAttention, in, options), InvalidArgument);
  }
}

TEST(AttentionCuda, RefusesWhatItHasNoKernelsFor) {
  emulated_cuda::Configure({});
  AttentionForwardArgs args;
  args.shape = MakeShape(1, 1, 1, 4, 257, true);
  EXPECT_THROW(kCudaAttention.forward(args, nullptr), InvalidArgument);
  args.shape = MakeShape(1, 1, 1, 4, 64, true);
  args.shape.dtype = DType::kF64;
  EXPECT_THROW(kCudaAttention.forward(args, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace pando
