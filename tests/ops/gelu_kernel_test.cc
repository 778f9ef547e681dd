#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/kernels/column_sums.h"
#include "ops/kernels/gelu.h"
#include "tests/isa_tables.h"
#include "tests/samples.h"

namespace pando {
namespace {

const RowShape kShapes[] = {{0, 5}, {3, 0}, {1, 1}, {7, 13}, {3, 40009}, {1031, 17}};

double TextbookGelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

template <typename T>
struct Problem {
  using C = ComputeType<T>;
  explicit Problem(RowShape s)
      : rows(s.rows),
        cols(s.cols),
        x(Samples<T>(rows * cols, 0, 5)),
        bias(Samples<T>(cols, 1000)),
        dy(Samples<T>(rows * cols, 2000)),
        pre(rows * cols),
        y(rows * cols),
        dx(rows * cols),
        dbias(Samples<C>(cols, 3000)) {}

  void Forward(const GeluKernels& kernels) {
    kernels.forward({x.data(), bias.data(), pre.data(), y.data(), DTypeOf<T>::value, rows, cols},
                    nullptr);
  }
  void Backward(const GeluKernels& kernels, bool accumulate) {
    std::vector<char> scratch(kernels.backward_scratch(rows, cols, DTypeOf<T>::value));
    kernels.backward({pre.data(), dy.data(), dx.data(), dbias.data(), accumulate, DTypeOf<T>::value,
                      rows, cols, scratch.data()},
                     nullptr);
  }

  int64_t rows, cols;
  std::vector<T> x, bias, dy, pre, y, dx;
  std::vector<C> dbias;
};

class GeluKernelTest : public testing::TestWithParam<IsaTable<GeluKernels>> {
 protected:
  const GeluKernels& kernels() const { return *GetParam().table; }
};

template <typename T>
void CheckForward(const GeluKernels& kernels) {
  for (RowShape s : kShapes) {
    Problem<T> p(s);
    p.Forward(kernels);
    std::vector<double> want(p.y.size());
    for (int64_t i = 0; i < s.rows * s.cols; ++i) {
      const auto sum = RoundTo<T>(ToFloat(p.x[i]) + ToFloat(p.bias[i % s.cols]));
      ASSERT_EQ(ToFloat(p.pre[i]), ToFloat(sum));
      want[i] = TextbookGelu(ToFloat(sum));
    }
    // The exponent's argument is at most 20 where it matters, and its rounding is multiplied by it.
    ExpectClose(p.y, want, 20, 1);

    // Without keeping the sum; without a bias, in place; and a bias alone into pre.
    std::vector<T> y(p.y.size());
    GeluForwardArgs a{p.x.data(),        p.bias.data(), nullptr, y.data(),
                      DTypeOf<T>::value, s.rows,        s.cols};
    kernels.forward(a, nullptr);
    PANDO_EXPECT_SAME_BITS(y, p.y);
    y = p.pre;
    kernels.forward({y.data(), nullptr, nullptr, y.data(), DTypeOf<T>::value, s.rows, s.cols},
                    nullptr);
    PANDO_EXPECT_SAME_BITS(y, p.y);
    std::vector<T> pre(p.y.size());
    kernels.forward(
        {p.pre.data(), nullptr, pre.data(), y.data(), DTypeOf<T>::value, s.rows, s.cols}, nullptr);
    PANDO_EXPECT_SAME_BITS(y, p.y);
    PANDO_EXPECT_SAME_BITS(pre, p.pre);
  }
}

TEST_P(GeluKernelTest, ForwardFollowsTheDefinition) {
  CheckForward<float>(kernels());
  CheckForward<BFloat16>(kernels());
  CheckForward<Float16>(kernels());
  CheckForward<double>(kernels());
}

TEST_P(GeluKernelTest, BackwardIsTheSlopeOfForward) {
  Problem<double> p({19, 7});
  p.Forward(kernels());
  p.Backward(kernels(), /*accumulate=*/false);
  const auto loss = [&] {
    Problem<double> q = p;
    q.Forward(kernels());
    return Dot(q.y, q.dy);
  };
  ExpectSlopes(p.dx, p.x, loss, 1e-8);
  ExpectSlopes(p.dbias, p.bias, loss, 1e-8);
}

template <typename T>
void CheckBackward(const GeluKernels& kernels) {
  for (RowShape s : kShapes) {
    Problem<T> p(s);
    p.Forward(kernels);
    Problem<double> q(s);
    q.pre = Doubles(p.pre);
    q.dy = Doubles(p.dy);
    q.dbias = Doubles(p.dbias);
    p.Backward(kernels, /*accumulate=*/true);
    q.Backward(kernels, /*accumulate=*/true);
    ExpectClose(p.dx, Doubles(q.dx), 20, 1);
    ExpectClose(p.dbias, Doubles(q.dbias), 4, 10 + static_cast<double>(s.rows));

    std::vector<T> dx = p.dy;  // without the gradient of a bias, in place
    kernels.backward({p.pre.data(), dx.data(), dx.data(), nullptr, false, DTypeOf<T>::value, s.rows,
                      s.cols, nullptr},
                     nullptr);
    PANDO_EXPECT_SAME_BITS(dx, p.dx);
  }
}

TEST_P(GeluKernelTest, BackwardInEveryDTypeIsThatInDouble) {
  CheckBackward<float>(kernels());
  CheckBackward<BFloat16>(kernels());
  CheckBackward<Float16>(kernels());
}

TEST_P(GeluKernelTest, ThreadsDoNotChangeABit) {
  const auto [one, three] = WithOneAndThreeThreads(Problem<BFloat16>({1031, 40}), [&](auto& p) {
    p.Forward(kernels());
    p.Backward(kernels(), /*accumulate=*/true);
  });
  PANDO_EXPECT_SAME_BITS(one.y, three.y);
  PANDO_EXPECT_SAME_BITS(one.dx, three.dx);
  PANDO_EXPECT_SAME_BITS(one.dbias, three.dbias);
}

class ColumnSumsKernelTest : public testing::TestWithParam<IsaTable<ColumnSumsKernels>> {
 protected:
  const ColumnSumsKernels& kernels() const { return *GetParam().table; }
};

template <typename T>
void CheckColumnSums(const ColumnSumsKernels& kernels) {
  using C = ComputeType<T>;
  for (RowShape s : kShapes) {
    const std::vector<T> x = Samples<T>(s.rows * s.cols);
    std::vector<double> want(s.cols);
    for (int64_t i = 0; i < s.rows * s.cols; ++i) want[i % s.cols] += ToFloat(x[i]);
    std::vector<C> sums(s.cols, C(7));
    std::vector<char> scratch(kernels.scratch(s.rows, s.cols, DTypeOf<T>::value));
    ColumnSumsArgs a{x.data(), DTypeOf<T>::value, s.rows, s.cols, sums.data(),
                     false,    scratch.data()};
    kernels.run(a, nullptr);
    ExpectClose(sums, want, 4, 1 + static_cast<double>(s.rows));
    const std::vector<C> once = sums;
    a.accumulate = true;
    kernels.run(a, nullptr);
    for (double& w : want) w *= 2;
    ExpectClose(sums, want, 8, 1 + static_cast<double>(s.rows));

    std::vector<C> alone(s.cols);
    a.sums = alone.data();
    a.accumulate = false;
    const WithThreads with(1);
    kernels.run(a, nullptr);
    PANDO_EXPECT_SAME_BITS(alone, once);
  }
}

TEST_P(ColumnSumsKernelTest, AddsUpRows) {
  CheckColumnSums<float>(kernels());
  CheckColumnSums<BFloat16>(kernels());
  CheckColumnSums<Float16>(kernels());
  CheckColumnSums<double>(kernels());
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(GeluKernelTest, GeluKernels, kGelu);
PANDO_INSTANTIATE_ISA_TABLES(ColumnSumsKernelTest, ColumnSumsKernels, kColumnSums);

}  // namespace pando
