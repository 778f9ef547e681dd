#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/kernels/layer_norm.h"
#include "tests/isa_tables.h"
#include "tests/samples.h"

namespace pando {
namespace {

constexpr double kEps = 1e-5;

// Nothing, one element, primes, and (1031 rows) several partial sums of more than 16 rows.
const RowShape kShapes[] = {{0, 5}, {3, 0}, {1, 1}, {2, 7}, {19, 257}, {1031, 13}};

template <typename T>
struct Problem {
  using C = ComputeType<T>;
  explicit Problem(RowShape s)
      : rows(s.rows),
        cols(s.cols),
        x(Samples<T>(rows * cols)),
        residual(Samples<T>(rows * cols, 1000)),
        weight(Samples<T>(cols, 2000)),
        bias(Samples<T>(cols, 3000)),
        dy(Samples<T>(rows * cols, 4000)),
        sum(rows * cols),
        y(rows * cols),
        dx(rows * cols),
        mean(rows),
        rstd(rows),
        dweight(Samples<C>(cols, 5000)),
        dbias(Samples<C>(cols, 6000)) {}

  void Forward(const LayerNormKernels& kernels) {
    kernels.forward({x.data(), nullptr, nullptr, weight.data(), bias.data(), y.data(), mean.data(),
                     rstd.data(), DTypeOf<T>::value, rows, cols, kEps},
                    nullptr);
  }
  void ForwardOfSum(const LayerNormKernels& kernels) {
    kernels.forward({x.data(), residual.data(), sum.data(), weight.data(), nullptr, y.data(),
                     mean.data(), rstd.data(), DTypeOf<T>::value, rows, cols, kEps},
                    nullptr);
  }
  void Backward(const LayerNormKernels& kernels, const T* dsum, bool accumulate) {
    std::vector<char> scratch(kernels.backward_scratch(rows, cols, DTypeOf<T>::value));
    kernels.backward(
        {x.data(), weight.data(), dy.data(), mean.data(), rstd.data(), dsum, dx.data(),
         dweight.data(), dbias.data(), accumulate, DTypeOf<T>::value, rows, cols, scratch.data()},
        nullptr);
  }

  int64_t rows, cols;
  std::vector<T> x, residual, weight, bias, dy, sum, y, dx;
  std::vector<C> mean, rstd, dweight, dbias;
};

// The definition, in f64.
std::vector<double> Reference(const std::vector<double>& x, const std::vector<double>& weight,
                              const std::vector<double>& bias, int64_t rows, int64_t cols) {
  std::vector<double> y(rows * cols);
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0;
    double variance = 0;
    for (int64_t c = 0; c < cols; ++c) mean += x[r * cols + c] / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c) {
      variance += std::pow(x[r * cols + c] - mean, 2) / static_cast<double>(cols);
    }
    for (int64_t c = 0; c < cols; ++c) {
      const double xhat = (x[r * cols + c] - mean) / std::sqrt(variance + kEps);
      y[r * cols + c] = xhat * weight[c] + (bias.empty() ? 0 : bias[c]);
    }
  }
  return y;
}

class LayerNormKernelTest : public testing::TestWithParam<IsaTable<LayerNormKernels>> {
 protected:
  const LayerNormKernels& kernels() const { return *GetParam().table; }
};

template <typename T>
void CheckForward(const LayerNormKernels& kernels) {
  for (RowShape s : kShapes) {
    Problem<T> p(s);
    p.Forward(kernels);
    // Mean and variance are sums of up to 257 terms; 20 roundings cover their pairwise errors, and
    // with two columns close together rstd (up to 10 here) multiplies that of x - mean.
    ExpectClose(p.y, Reference(Doubles(p.x), Doubles(p.weight), Doubles(p.bias), s.rows, s.cols),
                20, 4);

    p.ForwardOfSum(kernels);
    for (int64_t i = 0; i < s.rows * s.cols; ++i) {
      ASSERT_EQ(ToFloat(p.sum[i]), ToFloat(RoundTo<T>(ToFloat(p.x[i]) + ToFloat(p.residual[i]))));
    }
    ExpectClose(p.y, Reference(Doubles(p.sum), Doubles(p.weight), {}, s.rows, s.cols), 20, 4);
  }
}

TEST_P(LayerNormKernelTest, ForwardFollowsTheDefinition) {
  CheckForward<float>(kernels());
  CheckForward<BFloat16>(kernels());
  CheckForward<Float16>(kernels());
  CheckForward<double>(kernels());
}

// A mean far from 0 must not cancel the variance away.
TEST_P(LayerNormKernelTest, ForwardIsStableFarFromZero) {
  Problem<float> p({1, 1024});
  for (float& x : p.x) x += 1000.0f;
  p.Forward(kernels());
  // x itself is rounded to 2^-14 around 1000; the reference sees the same x. The mean is off by a
  // few of its ulps, 2^-14 each, against deviations of 0.7.
  ExpectClose(p.y, Reference(Doubles(p.x), Doubles(p.weight), Doubles(p.bias), 1, 1024), 4, 1400);
}

TEST_P(LayerNormKernelTest, BackwardIsTheSlopeOfForward) {
  for (RowShape s : {RowShape{1, 1}, RowShape{2, 7}, RowShape{40, 5}}) {
    Problem<double> p(s);
    p.Forward(kernels());
    p.Backward(kernels(), nullptr, /*accumulate=*/false);
    const auto loss = [&] {
      Problem<double> q = p;
      q.Forward(kernels());
      return Dot(q.y, q.dy);
    };
    // Central differences: h^2 times the third derivative, and eps / h.
    ExpectSlopes(p.dx, p.x, loss, 1e-7);
    ExpectSlopes(p.dweight, p.weight, loss, 1e-7);
    ExpectSlopes(p.dbias, p.bias, loss, 1e-7);
  }
}

// The same problem in f64.
template <typename T>
Problem<double> InDouble(const Problem<T>& p) {
  Problem<double> q({p.rows, p.cols});
  q.x = Doubles(p.x);
  q.weight = Doubles(p.weight);
  q.bias = Doubles(p.bias);
  q.dy = Doubles(p.dy);
  q.residual = Doubles(p.residual);
  q.dweight = Doubles(p.dweight);
  q.dbias = Doubles(p.dbias);
  return q;
}

template <typename T>
void CheckBackward(const LayerNormKernels& kernels) {
  for (RowShape s : kShapes) {
    Problem<T> p(s);
    Problem<double> q = InDouble(p);
    p.Forward(kernels);
    q.Forward(kernels);
    p.Backward(kernels, p.residual.data(), /*accumulate=*/true);
    q.Backward(kernels, q.residual.data(), /*accumulate=*/true);
    // rstd is below 10 (but 316 for a single column, where dx is 0 up to cancellation).
    ExpectClose(p.dx, Doubles(q.dx), 20, s.cols == 1 ? 316 : 10);
    // Sums over rows of terms around 1: a few roundings at the size of the sum.
    const double size = 10 + static_cast<double>(s.rows);
    ExpectClose(p.dweight, Doubles(q.dweight), 4, size);
    ExpectClose(p.dbias, Doubles(q.dbias), 4, size);
  }
}

TEST_P(LayerNormKernelTest, BackwardInEveryDTypeIsThatInDouble) {
  CheckBackward<float>(kernels());
  CheckBackward<BFloat16>(kernels());
  CheckBackward<Float16>(kernels());
}

TEST_P(LayerNormKernelTest, BackwardAccumulatesAndMayWorkInPlace) {
  Problem<double> p({37, 11});
  p.Forward(kernels());
  p.Backward(kernels(), nullptr, false);
  Problem<double> q = p;
  q.dx = q.residual;  // dx is dsum: adds
  q.Backward(kernels(), q.dx.data(), true);
  for (size_t i = 0; i < p.dx.size(); ++i) EXPECT_NEAR(q.dx[i], p.residual[i] + p.dx[i], 1e-14);
  for (int64_t c = 0; c < 11; ++c) {
    EXPECT_NEAR(q.dweight[c], 2 * p.dweight[c], 1e-13);
    EXPECT_NEAR(q.dbias[c], 2 * p.dbias[c], 1e-13);
  }
  LayerNormBackwardArgs frozen{};
  frozen.x = p.x.data();
  frozen.weight = p.weight.data();
  frozen.dy = frozen.dx = p.dy.data();  // dx is dy, and no gradient of weight or bias is wanted
  frozen.mean = p.mean.data();
  frozen.rstd = p.rstd.data();
  frozen.dtype = DType::kF64;
  frozen.rows = 37;
  frozen.cols = 11;
  std::vector<char> scratch(kernels().backward_scratch(37, 11, DType::kF64));
  frozen.scratch = scratch.data();
  kernels().backward(frozen, nullptr);
  PANDO_EXPECT_SAME_BITS(p.dy, p.dx);
}

TEST_P(LayerNormKernelTest, ThreadsDoNotChangeABit) {
  const auto [one, three] = WithOneAndThreeThreads(Problem<float>({1031, 13}), [&](auto& p) {
    p.Forward(kernels());
    p.Backward(kernels(), nullptr, /*accumulate=*/true);
  });
  PANDO_EXPECT_SAME_BITS(one.y, three.y);
  PANDO_EXPECT_SAME_BITS(one.dx, three.dx);
  PANDO_EXPECT_SAME_BITS(one.dweight, three.dweight);
  PANDO_EXPECT_SAME_BITS(one.dbias, three.dbias);
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(LayerNormKernelTest, LayerNormKernels, kLayerNorm);

}  // namespace pando
