#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/error.h"
#include "ops/kernels/attention.h"
#include "tests/fewer_cases.h"
#include "tests/isa_tables.h"
#include "tests/ops/attention_naive.h"
#include "tests/ops/attention_runner.h"
#include "tests/samples.h"

namespace pando {
namespace {

class AttentionKernelTest : public testing::TestWithParam<IsaTable<AttentionKernels>> {
 protected:
  template <typename T>
  ForwardResult<T> Forward(const NaiveAttention& in, int64_t scratch_pieces = 0) const {
    return RunForward<T>(kernels(), in, {.scratch_pieces = scratch_pieces});
  }
  template <typename T>
  Gradients<T> Backward(const NaiveAttention& in, int64_t scratch_pieces = 0) const {
    return RunBackward<T>(kernels(), in, {.scratch_pieces = scratch_pieces});
  }
  const AttentionKernels& kernels() const { return *GetParam().table; }

  template <typename T>
  void CheckGrid() const;
  template <typename T>
  void CheckDecoding() const;
  template <typename T>
  void CheckForward(NaiveAttention& in) const;
  template <typename T>
  void CheckBackward(NaiveAttention& in) const;
};

template <typename T>
void AttentionKernelTest::CheckForward(NaiveAttention& in) const {
  in.Forward();
  const ForwardResult<T> got = Forward<T>(in);
  const double roundings = Roundings(in);
  // Outputs are means of v (|v| <= 1, more where dropout scales), with weights relatively as wrong
  // as scores are absolutely.
  ExpectClose(got.out, in.out, roundings, std::max(1.0, MaxAbs(in.out)));
  using C = ComputeType<T>;
  for (size_t i = 0; i < in.lse.size(); ++i) {
    if (std::isinf(in.lse[i])) {
      ASSERT_EQ(got.lse[i], std::numeric_limits<C>::infinity());
    } else {
      ASSERT_NEAR(got.lse[i], in.lse[i],
                  roundings * UnitRoundoff<C>() * (1 + std::fabs(in.lse[i])));
    }
  }
}

template <typename T>
void AttentionKernelTest::CheckBackward(NaiveAttention& in) const {
  in.Forward();
  for (double& x : in.out) x = ToFloat(RoundTo<T>(static_cast<ComputeType<T>>(x)));
  in.Backward();
  const Gradients<T> got = Backward<T>(in);
  const double roundings = Roundings(in);
  ExpectClose(got.dq, in.dq, roundings, MaxAbs(in.dq_terms));
  ExpectClose(got.dk, in.dk, roundings, MaxAbs(in.dk_terms));
  ExpectClose(got.dv, in.dv, roundings, MaxAbs(in.dv_terms));
}

template <typename T>
void AttentionKernelTest::CheckGrid() const {
  const std::vector<int64_t> ids = {int64_t{1} << 35, 3};
  for (int64_t length : Cases({1, 2, 3, 5, 17, 63, 64, 65, 127, 200}, {3, 127})) {
    for (int64_t dim : Cases({1, 3, 8, 16, 33, 64, 80, 128}, {3, 64})) {
      if (length > 100 && dim != 3 && dim != 64) continue;  // the oracle is slow
      for (bool causal : {true, false}) {
        // Groups of heads, and dropout, on every other case.
        const bool odd = (length + dim) % 2 == 1;
        AttentionShape shape = MakeShape(length > 100 ? 1 : 2, 2, odd ? 1 : 2, length, dim, causal);
        if (dim % 3 != 0) {
          shape.dropout = 0.2;
          shape.sample_ids = ids.data();
        }
        SCOPED_TRACE("length " + std::to_string(length) + " dim " + std::to_string(dim) +
                     (causal ? " causal" : " full"));
        NaiveAttention in = MakeCase<T>(shape);
        CheckForward<T>(in);
        CheckBackward<T>(in);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(AttentionKernelTest, AgreesWithF64InF32) { CheckGrid<float>(); }
TEST_P(AttentionKernelTest, AgreesWithF64InBF16) { CheckGrid<BFloat16>(); }
TEST_P(AttentionKernelTest, AgreesWithF64InF16) { CheckGrid<Float16>(); }
TEST_P(AttentionKernelTest, AgreesWithF64InF64) { CheckGrid<double>(); }

TEST_P(AttentionKernelTest, SharesKeysAmongGroupsOfHeads) {
  for (int64_t kv_heads : {1, 2, 3, 6}) {
    NaiveAttention in = MakeCase<float>(MakeShape(2, 6, kv_heads, 70, 20, true));
    CheckForward<float>(in);
    CheckBackward<float>(in);
  }
}

// Long enough for several ranges of queries per head, of which the last is short.
TEST_P(AttentionKernelTest, LongSequences) {
  for (bool causal : {true, false}) {
    NaiveAttention in = MakeCase<float>(MakeShape(1, 2, 1, 611, 24, causal));
    CheckForward<float>(in);
    CheckBackward<float>(in);
  }
}

TEST_P(AttentionKernelTest, QueriesAreTheLastOfTheKeys) {
  for (int64_t queries : Cases({1, 2, 7, 65, 130}, {2, 130})) {
    for (int64_t keys : Cases({1, 6, 64, 129, 300}, {6, 129})) {
      for (bool causal : {true, false}) {
        AttentionShape shape = MakeShape(2, 4, 2, keys, 24, causal);
        shape.query_length = queries;  // may exceed the keys: then early ones see none
        SCOPED_TRACE(std::to_string(queries) + " queries, " + std::to_string(keys) + " keys");
        NaiveAttention in = MakeCase<float>(shape);
        CheckForward<float>(in);
        CheckBackward<float>(in);
      }
    }
  }
}

template <typename T>
void AttentionKernelTest::CheckDecoding() const {
  const std::vector<int32_t> lengths = {150, 149, 0, 64, 200, 1};
  for (int64_t queries : {1, 2, 3, 8}) {
    for (int64_t dim : {1, 20, 64}) {
      for (int64_t group : {1, 3}) {
        AttentionShape shape = MakeShape(6, 2 * group, 2, 200, dim, group == 1);
        shape.query_length = queries;
        if (dim > 1) shape.lengths = lengths.data();
        SCOPED_TRACE(std::to_string(queries) + " queries, dim " + std::to_string(dim));
        NaiveAttention in = MakeCase<T>(shape);
        CheckForward<T>(in);
      }
    }
  }
}

TEST_P(AttentionKernelTest, FewQueriesToManyKeys) {
  CheckDecoding<float>();
  CheckDecoding<BFloat16>();
  CheckDecoding<Float16>();
  CheckDecoding<double>();
}

TEST_P(AttentionKernelTest, KeysBeyondTheLengthAreNeverRead) {
  constexpr int64_t kLength = 150;
  const std::vector<int32_t> lengths = {150, 0, 1, 64, 65, 100};
  const std::vector<int64_t> ids = {0, 1, 2, 3, 4, 5};
  for (bool causal : {true, false}) {
    AttentionShape shape = MakeShape(6, 2, 1, kLength, 12, causal);
    shape.lengths = lengths.data();
    shape.sample_ids = ids.data();
    shape.dropout = 0.1;
    NaiveAttention in = MakeCase<float>(shape);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (int64_t b = 0; b < 6; ++b) {
      for (int64_t i = lengths[b]; i < kLength; ++i) {
        for (int64_t e = 0; e < 24; ++e) in.q[in.QueryAt(b, i, 0) + e] = nan;
        for (int64_t e = 0; e < 24; ++e) in.dout[in.QueryAt(b, i, 0) + e] = nan;
        for (int64_t e = 0; e < 12; ++e) in.k[in.KeyAt(b, i, 0) + e] = nan;
        for (int64_t e = 0; e < 12; ++e) in.v[in.KeyAt(b, i, 0) + e] = nan;
      }
    }
    CheckForward<float>(in);
    CheckBackward<float>(in);
  }
}

TEST_P(AttentionKernelTest, LargeScoresDoNotOverflow) {
  // Scores to some 3000: softmax picks single keys. A score's rounding is then 3000 times as large,
  // and is the relative error of a probability.
  AttentionShape shape = MakeShape(1, 1, 1, 100, 16, true);
  NaiveAttention in = MakeCase<float>(shape, 40);
  in.Forward();
  const ForwardResult<float> got = Forward<float>(in);
  ExpectClose(got.out, in.out, 4, 3000);
  for (size_t i = 0; i < in.lse.size(); ++i) {
    EXPECT_NEAR(got.lse[i], in.lse[i], 4 * 3000 * UnitRoundoff<float>());
  }
}

// Gradients against differences of the f64 oracle's forward, which knows nothing of backward.
TEST_P(AttentionKernelTest, GradientsAreSlopes) {
  const std::vector<int64_t> ids = {9, 4};
  const std::vector<int32_t> lengths = {5, 6};
  for (bool causal : {true, false}) {
    AttentionShape shape = MakeShape(2, 4, 2, 6, 5, causal);
    shape.dropout = 0.25;
    shape.sample_ids = ids.data();
    shape.lengths = lengths.data();
    NaiveAttention in = MakeCase<double>(shape);
    in.Forward();
    const Gradients<double> got = Backward<double>(in);
    const auto loss = [&] {
      in.Forward();
      return Dot(in.out, in.dout);
    };
    // Errors of differences of step h = 1e-5: h^2 by curvature, 1e-14 / h by rounding.
    ExpectSlopes(got.dq, in.q, loss, 3e-9, 1e-5);
    ExpectSlopes(got.dk, in.k, loss, 3e-9, 1e-5);
    ExpectSlopes(got.dv, in.v, loss, 3e-9, 1e-5);
  }
}

// With as many dimensions as keys, V = identity shows every probability: zero where dropped. So
// does dV for dO = identity. Odd lengths, and parts of them as queries, cut blocks and tiles
// everywhere.
TEST_P(AttentionKernelTest, DropsExactlyWhereTheBitsSay) {
  const std::vector<int64_t> ids = {(int64_t{1} << 33) + 5};
  for (int64_t length : {30, 64, 127, 148, 201}) {
    AttentionShape shape = MakeShape(1, 2, 1, length, length, false);
    shape.dropout = 0.5;
    shape.sample_ids = ids.data();
    NaiveAttention in = MakeCase<float>(shape);
    for (int64_t j = 0; j < length; ++j) {
      for (int64_t e = 0; e < length; ++e) {
        in.v[in.KeyAt(0, j, 0) + e] = j == e ? 1 : 0;
        for (int64_t h : {0, 1}) in.dout[in.QueryAt(0, j, h) + e] = j == e && h == 1 ? 1 : 0;
      }
    }
    in.Forward();
    const ForwardResult<float> forward = Forward<float>(in);
    const Gradients<float> backward = Backward<float>(in);
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t j = 0; j < length; ++j) {
        for (int64_t h : {0, 1}) {
          ASSERT_EQ(forward.out[in.QueryAt(0, i, h) + j] == 0, in.Factor(0, h, i, j) == 0);
        }
        ASSERT_EQ(backward.dv[in.KeyAt(0, j, 0) + i] == 0, in.Factor(0, 1, i, j) == 0);
      }
    }
  }
}

// Head 1 starts at element 70000^2 of dropout's matrix, beyond 2^32; few queries have to be
// computed.
TEST_P(AttentionKernelTest, DropoutElementsPass32Bits) {
  const std::vector<int32_t> lengths = {9};
  const std::vector<int64_t> ids = {1};
  AttentionShape shape = MakeShape(1, 2, 1, 70000, 1, false);
  shape.lengths = lengths.data();
  shape.sample_ids = ids.data();
  shape.dropout = 0.5;
  NaiveAttention in = MakeCase<float>(shape);
  CheckForward<float>(in);
  CheckBackward<float>(in);
}

// Row 1 lies 2^31 elements after row 0, sample 1 2^32 after sample 0: address space without memory.
TEST_P(AttentionKernelTest, StridesPass32Bits) {
  constexpr int64_t kRow = int64_t{1} << 31;
  constexpr int64_t kBytes = 2 * (3 * kRow + 4096);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space of " << kBytes << " bytes";
  auto* packed = static_cast<BFloat16*>(memory);
  AttentionShape shape = MakeShape(2, 1, 1, 2, 8, true);
  shape.dtype = DType::kBF16;
  NaiveAttention in = MakeCase<BFloat16>(shape);
  const int64_t out = 100, gradients = 200;  // where they start in a row of the same memory
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t e = 0; e < 8; ++e) {
      const size_t i = row * 8 + e;
      packed[row * kRow + e] = ToBFloat16(static_cast<float>(in.q[i]));
      packed[row * kRow + 8 + e] = ToBFloat16(static_cast<float>(in.k[i]));
      packed[row * kRow + 16 + e] = ToBFloat16(static_cast<float>(in.v[i]));
    }
  }
  const auto parts = SplitPackedQkv(shape, ConstAttentionRows{packed, 2 * kRow, kRow});
  std::vector<float> lse(4);
  Tensor forward_scratch = ScratchFor(kernels().forward_scratch_bytes, shape, {});
  Tensor backward_scratch = ScratchFor(kernels().backward_scratch_bytes, shape, {});
  kernels().forward({.shape = shape,
                     .q = parts.q,
                     .k = parts.k,
                     .v = parts.v,
                     .out = {packed + out, 2 * kRow, kRow},
                     .lse = lse.data(),
                     .scratch = forward_scratch.mutable_data(),
                     .scratch_bytes = forward_scratch.bytes()},
                    nullptr);
  in.Forward();
  in.dout = in.out;
  in.lse.assign(lse.begin(), lse.end());
  const ForwardResult<BFloat16> near = Forward<BFloat16>(in);
  for (int64_t i = 0; i < 32; ++i) in.out[i] = in.dout[i] = ToFloat(near.out[i]);
  const auto d = SplitPackedQkv(shape, AttentionRows{packed + gradients, 2 * kRow, kRow});
  kernels().backward({.shape = shape,
                      .q = parts.q,
                      .k = parts.k,
                      .v = parts.v,
                      .out = {packed + out, 2 * kRow, kRow},
                      .dout = {packed + out, 2 * kRow, kRow},
                      .lse = lse.data(),
                      .dq = d.q,
                      .dk = d.k,
                      .dv = d.v,
                      .scratch = backward_scratch.mutable_data(),
                      .scratch_bytes = backward_scratch.bytes()},
                     nullptr);
  const Gradients<BFloat16> want = Backward<BFloat16>(in);
  for (int64_t i = 0; i < 32; ++i) {
    const BFloat16* row = packed + i / 8 * kRow + i % 8;
    EXPECT_EQ(row[out].bits, near.out[i].bits);
    EXPECT_EQ(row[gradients].bits, want.dq[i].bits);
    EXPECT_EQ(row[gradients + 8].bits, want.dk[i].bits);
    EXPECT_EQ(row[gradients + 16].bits, want.dv[i].bits);
  }
  munmap(memory, kBytes);
}

TEST_P(AttentionKernelTest, BitsDoNotDependOnThreadsOrScratch) {
  const std::vector<int64_t> ids = {1, 2, 3};
  AttentionShape shape = MakeShape(3, 3, 3, 300, 20, true);
  shape.dropout = 0.1;
  shape.sample_ids = ids.data();
  NaiveAttention in = MakeCase<BFloat16>(shape);
  in.Forward();
  const WithThreads two(2);
  const ForwardResult<float> forward = Forward<float>(in);
  const Gradients<float> backward = Backward<float>(in);
  for (int threads : {1, 2, 3}) {
    for (int64_t pieces : {1, 3}) {
      const WithThreads set(threads);
      const ForwardResult<float> f = Forward<float>(in, pieces);
      const Gradients<float> b = Backward<float>(in, pieces);
      PANDO_EXPECT_SAME_BITS(f.out, forward.out);
      PANDO_EXPECT_SAME_BITS(f.lse, forward.lse);
      PANDO_EXPECT_SAME_BITS(b.dq, backward.dq);
      PANDO_EXPECT_SAME_BITS(b.dk, backward.dk);
      PANDO_EXPECT_SAME_BITS(b.dv, backward.dv);
    }
  }
}

TEST_P(AttentionKernelTest, ASampleIsTheSameInAnyBatch) {
  const std::vector<int64_t> together = {11, 12};
  const std::vector<int64_t> alone = {12};
  AttentionShape shape = MakeShape(2, 2, 2, 67, 16, true);
  shape.dropout = 0.3;
  shape.sample_ids = together.data();
  const NaiveAttention both = MakeCase<float>(shape);
  shape.batch = 1;
  shape.sample_ids = alone.data();
  NaiveAttention second(shape);
  second.q.assign(both.q.begin() + both.QueryAt(1, 0, 0), both.q.end());
  second.k.assign(both.k.begin() + both.KeyAt(1, 0, 0), both.k.end());
  second.v.assign(both.v.begin() + both.KeyAt(1, 0, 0), both.v.end());
  const std::vector<float> all = Forward<float>(both).out;
  PANDO_EXPECT_SAME_BITS(std::vector<float>(all.begin() + both.QueryAt(1, 0, 0), all.end()),
                         Forward<float>(second).out);
}

TEST_P(AttentionKernelTest, PackedActivations) {
  AttentionShape shape = MakeShape(2, 4, 2, 37, 10, true);
  NaiveAttention in = MakeCase<float>(shape);
  in.Forward();
  const int64_t q_width = 40, kv_width = 20, width = q_width + 2 * kv_width;
  std::vector<float> packed(size_t{2} * 37 * width);
  for (int64_t row = 0; row < int64_t{2} * 37; ++row) {
    for (int64_t e = 0; e < q_width; ++e) {
      packed[row * width + e] = static_cast<float>(in.q[row * q_width + e]);
    }
    for (int64_t e = 0; e < kv_width; ++e) {
      packed[row * width + q_width + e] = static_cast<float>(in.k[row * kv_width + e]);
      packed[row * width + q_width + kv_width + e] = static_cast<float>(in.v[row * kv_width + e]);
    }
  }
  const auto parts = SplitPackedQkv(shape, ConstAttentionRows{packed.data(), 37 * width, width});
  std::vector<float> out(in.out.size());
  Tensor scratch = ScratchFor(kernels().forward_scratch_bytes, shape, {});
  kernels().forward({.shape = shape,
                     .q = parts.q,
                     .k = parts.k,
                     .v = parts.v,
                     .out = {out.data(), 37 * q_width, q_width},
                     .scratch = scratch.mutable_data(),
                     .scratch_bytes = scratch.bytes()},
                    nullptr);
  PANDO_EXPECT_SAME_BITS(out, Forward<float>(in).out);
}

TEST_P(AttentionKernelTest, NothingToDo) {
  for (const auto& [batch, queries, keys] :
       {std::array<int64_t, 3>{0, 5, 5}, {2, 0, 5}, {2, 5, 0}}) {
    AttentionShape shape = MakeShape(batch, 2, 1, keys, 8, false);
    shape.query_length = queries;
    NaiveAttention in = MakeCase<float>(shape);
    CheckForward<float>(in);
    CheckBackward<float>(in);
  }
}

TEST_P(AttentionKernelTest, RefusesIntegers) {
  AttentionShape shape = MakeShape(1, 1, 1, 1, 1, true);
  shape.dtype = DType::kI32;
  AttentionForwardArgs forward;
  forward.shape = shape;
  EXPECT_THROW(kernels().forward(forward, nullptr), InvalidArgument);
  AttentionBackwardArgs backward;
  backward.shape = shape;
  EXPECT_THROW(kernels().backward(backward, nullptr), InvalidArgument);
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(AttentionKernelTest, AttentionKernels, kAttention);

}  // namespace pando
