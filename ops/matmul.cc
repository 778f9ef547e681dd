#include "ops/matmul.h"

#include <array>
#include <utility>

#include "ops/gemm.h"
#include "ops/op_support.h"

namespace pando {
namespace {

/// Leading dimensions, and the matrix in the last two.
struct Operand {
  std::vector<int64_t> leading;
  int64_t count = 1;  // matrices
  int64_t rows, cols;
};

Operand OperandOf(const Tensor& t) {
  Require(t.rank() >= 2, "matmul: ", Describe(t), " has fewer than two dimensions");
  Operand o{{t.shape().dims().begin(), t.shape().dims().end() - 2}, 1, t.dim(-2), t.dim(-1)};
  for (int64_t d : o.leading) o.count *= d;
  return o;
}

/// Adds op(u) op(v) to the gradient of `input`. A matrix that served for the whole batch gets the
/// sum over it, product by product in order, rounded once.
void AddProduct(BackwardPass& pass, int input, Gemm gemm, const Tensor& u, const Tensor& v,
                bool shared) {
  if (!shared || gemm.batch == 1) {
    GradientTarget target = pass.Target(input);
    gemm.accumulate = target.accumulate;
    gemm.stride_c = shared ? 0 : gemm.m * gemm.n;
    RunGemm(gemm, u, v, target.tensor);
    return;
  }
  SumTarget sum(pass, input, {gemm.m, gemm.n}, u);
  if (gemm.batch == 0) sum.StartFromZero();
  const Gemm all = gemm;
  gemm.batch = 1;
  for (int64_t b = 0; b < all.batch; ++b) {
    gemm.accumulate = sum.accumulate() || b > 0;
    const auto at = [b](const Tensor& t, int64_t stride) {
      const int64_t size = stride == 0 ? t.numel() : stride;
      return Tensor::View(t.storage(), t.offset() + b * stride, {size}, t.dtype());
    };
    RunGemm(gemm, at(u, all.stride_a), at(v, all.stride_b), sum.tensor());
  }
  sum.Finish();
}

/// What backward keeps of an operand, whose matrices are stored so.
struct Side {
  Saved value;
  bool transposed;
  bool shared;  // one matrix for the whole batch
  int64_t rows, cols, stride;
};

/// The gradient of operand `which`: dA = dC B^T, dB = A^T dC, with A and B as they are multiplied;
/// the product transposed where the operand is stored transposed.
void AddGradient(BackwardPass& pass, int which, const std::array<Side, 2>& sides,
                 const Gemm& forward) {
  if (!pass.Needs(which)) return;
  const Side& self = sides[which];
  const Side& other = sides[1 - which];
  const Tensor& dc = pass.Gradient();
  const Tensor factor = other.value.Get();
  Gemm g{.batch = forward.batch,
         .m = self.rows,
         .n = self.cols,
         .k = which == 0 ? forward.n : forward.m};
  const bool factor_transposed = self.transposed == other.transposed;
  if ((which == 0) != self.transposed) {
    g.transpose_a = self.transposed, g.transpose_b = factor_transposed;
    g.stride_a = forward.stride_c, g.stride_b = other.stride;
    AddProduct(pass, which, g, dc, factor, self.shared);
  } else {
    g.transpose_a = factor_transposed, g.transpose_b = self.transposed;
    g.stride_a = other.stride, g.stride_b = forward.stride_c;
    AddProduct(pass, which, g, factor, dc, self.shared);
  }
}

}  // namespace

Tensor Matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  CheckFloating("matmul", a, {&b});
  const Operand left = OperandOf(a), right = OperandOf(b);
  const bool ta = options.transpose_a, tb = options.transpose_b;
  const int64_t m = ta ? left.cols : left.rows;
  const int64_t k = ta ? left.rows : left.cols;
  const int64_t n = tb ? right.rows : right.cols;
  Require(k == (tb ? right.cols : right.rows) &&
              (left.leading == right.leading || left.leading.empty() || right.leading.empty()),
          "matmul: ", Describe(a), ta ? " transposed" : "", " and ", Describe(b),
          tb ? " transposed" : "", " don't fit");
  std::vector<int64_t> dims = left.leading.empty() ? right.leading : left.leading;
  const bool a_shared = left.leading.empty() && !right.leading.empty();
  const bool b_shared = right.leading.empty() && !left.leading.empty();
  const int64_t batch = a_shared ? right.count : left.count;
  dims.push_back(m);
  dims.push_back(n);
  Tensor c = Tensor::Empty(Shape(std::move(dims)), a.dtype(), a.device(), "matmul");
  const Gemm gemm{.transpose_a = ta,
                  .transpose_b = tb,
                  .batch = batch,
                  .m = m,
                  .n = n,
                  .k = k,
                  .stride_a = a_shared ? 0 : m * k,
                  .stride_b = b_shared ? 0 : k * n,
                  .stride_c = m * n};
  RunGemm(gemm, a, b, c);
  if (!Recording({&a, &b})) return c;
  const std::array<Side, 2> sides = {
      Side{Saved(a), ta, a_shared, left.rows, left.cols, gemm.stride_a},
      Side{Saved(b), tb, b_shared, right.rows, right.cols, gemm.stride_b}};
  const auto backward = [sides, gemm](BackwardPass& pass) {
    AddGradient(pass, 0, sides, gemm);
    AddGradient(pass, 1, sides, gemm);
  };
  Record("matmul", {&a, &b}, {&c}, backward);
  return c;
}

}  // namespace pando
