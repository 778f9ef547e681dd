#include "ops/linear.h"

#include <utility>

#include "ops/gelu.h"
#include "ops/linear_parts.h"
#include "ops/op_support.h"

namespace pando {

Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const LinearSizes s = CheckLinear("linear", x, weight, bias, layout);
  Tensor y = WithLastSize(x, s.out, "linear");
  RunGemm(s.Forward(), x, weight, y, bias);
  if (!Recording({&x, &weight, &bias})) return y;
  const auto backward = [x = Saved(x), weight = Saved(weight), s](BackwardPass& pass) {
    const Tensor& dy = pass.Gradient();
    AddParameterGradients(pass, 1, 2, x, dy, s);
    AddInputGradient(pass, 0, dy, weight, s);
  };
  Record("linear", {&x, &weight, &bias}, {&y}, backward);
  return y;
}

Tensor LinearGelu(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const LinearSizes s = CheckLinear("linear_gelu", x, weight, bias, layout);
  if (FusesProducts(x.device())) {
    const bool record = Recording({&x, &weight, &bias});
    Tensor y = WithLastSize(x, s.out, "linear_gelu");
    Tensor pre;
    if (record) pre = WithLastSize(x, s.out, "gelu input");
    if (RunFusedGemm(s.Forward(), {.kind = MatmulFusion::kGelu, .aux = pre}, x, weight, y, bias)) {
      if (!record) return y;
      const auto backward = [x = Saved(x), weight = Saved(weight), pre = Saved(pre),
                             s](BackwardPass& pass) {
        Tensor dpre = WithLastSize(pre.Get(), s.out, "gradient of gelu");
        GeluGradient(pre.Get(), pass.Gradient(), dpre, s.rows, s.out);
        AddParameterGradients(pass, 1, 2, x, dpre, s);
        AddInputGradient(pass, 0, dpre, weight, s);
      };
      Record("linear_gelu", {&x, &weight, &bias}, {&y}, backward);
      return y;
    }
  }
  Tensor y = Linear(x, weight, Tensor(), layout);
  return bias.defined() ? BiasGelu(y, bias, /*reuse_x=*/true) : Gelu(y);
}

Tensor FeedForward(const Tensor& x, const Tensor& weight_in, const Tensor& bias_in,
                   const Tensor& weight_out, const Tensor& bias_out, WeightLayout layout) {
  const LinearSizes in = CheckLinear("feed_forward", x, weight_in, bias_in, layout);
  CheckFloating("feed_forward", x, {&weight_out, &bias_out});
  Require(
      weight_out.rank() == 2 && weight_out.dim(layout == WeightLayout::kInOut ? 0 : 1) == in.out,
      "feed_forward: second weight ", Describe(weight_out), " behind a first of ",
      Describe(weight_in));
  const bool record = Recording({&x, &weight_in, &bias_in, &weight_out, &bias_out});
  Tensor hidden, pre;
  bool fused = record && FusesProducts(x.device());
  if (fused) {
    hidden = WithLastSize(x, in.out, "feed_forward");
    pre = WithLastSize(x, in.out, "gelu input");
    fused = RunFusedGemm(in.Forward(), {.kind = MatmulFusion::kGelu, .aux = pre}, x, weight_in,
                         hidden, bias_in);
  }
  if (!fused) {
    hidden = pre = Tensor();  // not to be held beside what now follows
    return Linear(LinearGelu(x, weight_in, bias_in, layout), weight_out, bias_out, layout);
  }
  const LinearSizes out = CheckLinear("feed_forward", hidden, weight_out, bias_out, layout);
  Tensor y = WithLastSize(x, out.out, "feed_forward");
  RunGemm(out.Forward(), hidden, weight_out, y, bias_out);
  const auto backward = [x = Saved(x), weight_in = Saved(weight_in), hidden = Saved(hidden),
                         pre = Saved(pre), weight_out = Saved(weight_out), in,
                         out](BackwardPass& pass) {
    const Tensor& dy = pass.Gradient();
    AddParameterGradients(pass, 3, 4, hidden, dy, out);
    if (!pass.Needs(0) && !pass.Needs(1) && !pass.Needs(2)) return;
    Tensor dpre = WithLastSize(pre.Get(), in.out, "gradient of gelu");
    if (!RunFusedGemm(out.Backward(), {.kind = MatmulFusion::kGeluGradient, .aux = pre.Get()}, dy,
                      weight_out.Get(), dpre)) {
      RunGemm(out.Backward(), dy, weight_out.Get(), dpre);
      GeluGradient(pre.Get(), dpre, dpre, in.rows, in.out);
    }
    AddParameterGradients(pass, 1, 2, x, dpre, in);
    AddInputGradient(pass, 0, dpre, weight_in, in);
  };
  Record("feed_forward", {&x, &weight_in, &bias_in, &weight_out, &bias_out}, {&y}, backward);
  return y;
}

}  // namespace pando
