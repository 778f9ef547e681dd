#include <gtest/gtest.h>

#include <vector>

#include "ops/kernels/embedding.h"
#include "tests/isa_tables.h"
#include "tests/samples.h"

namespace pando {
namespace {

struct Shape {
  int64_t batch;
  int64_t length;
  int64_t cols;
};
const Shape kShapes[] = {{0, 4, 5}, {1, 1, 1}, {3, 5, 0}, {3, 50, 67}, {2, 7, 300}};
constexpr int64_t kVocab = 23;
constexpr int64_t kOffset = 2;

template <typename T>
struct Problem {
  using C = ComputeType<T>;
  explicit Problem(Shape s)
      : shape(s),
        tokens(s.batch * s.length),
        table(Samples<T>(kVocab * s.cols)),
        positions(Samples<T>((kOffset + s.length) * s.cols, 9000)),
        out(s.batch * s.length * s.cols),
        dout(Samples<T>(s.batch * s.length * s.cols, 77)),
        dtable(Samples<C>(kVocab * s.cols, 5000)),
        dpositions(Samples<C>((kOffset + s.length) * s.cols, 6000)) {
    for (size_t n = 0; n < tokens.size(); ++n) {  // some often, some never
      tokens[n] = static_cast<int32_t>(n % 3 == 0 ? 5 : (n * 7919) % (kVocab - 2));
    }
  }

  int64_t count() const { return shape.batch * shape.length; }
  void Forward(const EmbeddingKernels& kernels, bool with_positions) {
    kernels.forward(
        {tokens.data(), table.data(), with_positions ? positions.data() : nullptr, out.data(),
         &error, DTypeOf<T>::value, count(), kVocab, shape.cols, shape.length, kOffset},
        nullptr);
  }
  void Backward(const EmbeddingKernels& kernels) {
    std::vector<char> scratch(kernels.backward_scratch(count(), kVocab));
    kernels.backward(
        {tokens.data(), dout.data(), dtable.data(), dpositions.data(), DTypeOf<T>::value, count(),
         kVocab, shape.cols, shape.length, kOffset, scratch.data()},
        nullptr);
  }

  Shape shape;
  std::vector<int32_t> tokens;
  std::vector<T> table, positions, out, dout;
  std::vector<C> dtable, dpositions;
  int32_t error = 0;
};

class EmbeddingKernelTest : public testing::TestWithParam<IsaTable<EmbeddingKernels>> {
 protected:
  const EmbeddingKernels& kernels() const { return *GetParam().table; }
};

template <typename T>
void CheckForward(const EmbeddingKernels& kernels) {
  for (Shape s : kShapes) {
    Problem<T> p(s);
    for (bool with_positions : {false, true}) {
      p.Forward(kernels, with_positions);
      EXPECT_EQ(p.error, 0);
      for (int64_t n = 0; n < p.count(); ++n) {
        for (int64_t c = 0; c < s.cols; ++c) {
          auto want = ToFloat(p.table[p.tokens[n] * s.cols + c]);
          if (with_positions) want += ToFloat(p.positions[(n % s.length + kOffset) * s.cols + c]);
          ASSERT_EQ(ToFloat(p.out[n * s.cols + c]), ToFloat(RoundTo<T>(want)));
        }
      }
    }
  }
}

TEST_P(EmbeddingKernelTest, ForwardLooksUpAndAdds) {
  CheckForward<float>(kernels());
  CheckForward<BFloat16>(kernels());
  CheckForward<Float16>(kernels());
  CheckForward<double>(kernels());
}

template <typename T>
void CheckBackward(const EmbeddingKernels& kernels) {
  using C = ComputeType<T>;
  for (Shape s : kShapes) {
    Problem<T> p(s);
    // In the order of tokens, as documented: so to the bit.
    std::vector<C> dtable = p.dtable;
    std::vector<C> dpositions = p.dpositions;
    for (int64_t i = 0; i < p.count() * s.cols; ++i) {
      const int64_t n = i / s.cols;
      const int64_t c = i % s.cols;
      dtable[p.tokens[n] * s.cols + c] += ToFloat(p.dout[i]);
      dpositions[(n % s.length + kOffset) * s.cols + c] += ToFloat(p.dout[i]);
    }
    for (int threads : {1, 3}) {
      const WithThreads with(threads);
      Problem<T> q(s);
      q.Backward(kernels);
      PANDO_EXPECT_SAME_BITS(q.dtable, dtable);
      PANDO_EXPECT_SAME_BITS(q.dpositions, dpositions);
    }
  }
}

TEST_P(EmbeddingKernelTest, BackwardAddsInTheOrderOfTokensOnAnyThreads) {
  CheckBackward<float>(kernels());
  CheckBackward<BFloat16>(kernels());
  CheckBackward<Float16>(kernels());
  CheckBackward<double>(kernels());
}

TEST_P(EmbeddingKernelTest, TokensOutsideTheVocabularyAreReportedAndLeftOut) {
  for (int32_t bad : {static_cast<int32_t>(kVocab), -1, 1 << 30}) {
    Problem<float> p({2, 3, 4});
    p.tokens[1] = bad;
    p.error = 4;
    p.Forward(kernels(), true);
    EXPECT_EQ(p.error, 5);
    for (int c = 0; c < 4; ++c) EXPECT_EQ(p.out[4 + c], 0.0f);
    Problem<float> zeroed = p;
    for (int c = 0; c < 4; ++c) zeroed.dout[4 + c] = 0;
    zeroed.tokens[1] = 0;
    p.Backward(kernels());
    zeroed.Backward(kernels());
    EXPECT_EQ(p.dtable, zeroed.dtable);
    EXPECT_EQ(p.dpositions, zeroed.dpositions);
  }
}

// Row 2^16 of a table 2^16 wide begins at element 2^32.
TEST_P(EmbeddingKernelTest, OffsetsPast32Bits) {
  constexpr int64_t kCols = 1 << 16;
  constexpr int64_t kRow = 1 << 16;
  std::vector<float> row = Samples<float>(kCols);
  // A table of which only the last row exists in memory.
  const auto base = reinterpret_cast<uintptr_t>(row.data()) - kRow * kCols * sizeof(float);
  const auto token = static_cast<int32_t>(kRow);
  std::vector<float> out(kCols);
  int32_t error = 0;
  EmbeddingForwardArgs a{};
  a.tokens = &token;
  a.table = reinterpret_cast<const void*>(base);  // NOLINT(performance-no-int-to-ptr)
  a.out = out.data();
  a.error = &error;
  a.dtype = DType::kF32;
  a.count = 1;
  a.vocab = kRow + 1;
  a.cols = kCols;
  kernels().forward(a, nullptr);
  EXPECT_EQ(error, 0);
  PANDO_EXPECT_SAME_BITS(out, row);
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(EmbeddingKernelTest, EmbeddingKernels, kEmbedding);

}  // namespace pando
