#include "ops/matmul.h"

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
  const int64_t sa = a_shared ? 0 : m * k, sb = b_shared ? 0 : k * n, sc = m * n;
  RunGemm({.transpose_a = ta,
           .transpose_b = tb,
           .batch = batch,
           .m = m,
           .n = n,
           .k = k,
           .stride_a = sa,
           .stride_b = sb,
           .stride_c = sc},
          a, b, c);
  if (!Recording({&a, &b})) return c;
  const auto backward = [a = Saved(a), b = Saved(b), ta, tb, m, n, k, batch, sa, sb, sc, a_shared,
                         b_shared](BackwardPass& pass) {
    const Tensor& dc = pass.Gradient();
    // dA = dC B^T, stored as A is: transposed, B dC^T.
    if (pass.Needs(0)) {
      const Tensor other = b.Get();
      Gemm g{.batch = batch, .k = n};
      if (ta) {
        g.transpose_a = tb, g.transpose_b = true;
        g.m = k, g.n = m, g.stride_a = sb, g.stride_b = sc;
        AddProduct(pass, 0, g, other, dc, a_shared);
      } else {
        g.transpose_b = !tb;
        g.m = m, g.n = k, g.stride_a = sc, g.stride_b = sb;
        AddProduct(pass, 0, g, dc, other, a_shared);
      }
    }
    // dB = A^T dC, stored as B is: transposed, dC^T A.
    if (pass.Needs(1)) {
      const Tensor other = a.Get();
      Gemm g{.batch = batch, .k = m};
      if (tb) {
        g.transpose_a = true, g.transpose_b = ta;
        g.m = n, g.n = k, g.stride_a = sc, g.stride_b = sa;
        AddProduct(pass, 1, g, dc, other, b_shared);
      } else {
        g.transpose_a = !ta;
        g.m = k, g.n = n, g.stride_a = sa, g.stride_b = sc;
        AddProduct(pass, 1, g, other, dc, b_shared);
      }
    }
  };
  Record("matmul", {&a, &b}, {&c}, backward);
  return c;
}

}  // namespace pando
