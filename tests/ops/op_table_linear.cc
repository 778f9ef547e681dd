// Linear layers, alone and with GELU.
#include "absl/strings/str_cat.h"
#include "ops/arithmetic.h"
#include "ops/linear.h"
#include "ops/matmul.h"
#include "tests/ops/op_table.h"

namespace pando {
namespace {

using Dimensions = std::vector<int64_t>;

struct LinearCase {
  Dimensions x;
  int64_t out;
  bool bias;
};

// Every size of 1 or 0, primes, and multiples of 8, for which devices have kernels of their own.
const LinearCase kLinearCases[] = {
    {{1}, 1, true},       {{5}, 3, false},      {{0, 5}, 3, true},    {{3, 0}, 5, true},
    {{3, 0}, 5, false},   {{3, 5}, 0, true},    {{2, 3, 5}, 7, true}, {{2, 3, 5}, 7, false},
    {{13, 67}, 71, true}, {{2, 0, 5}, 3, true}, {{1, 8}, 16, true},   {{2, 4, 24}, 8, false},
    {{40, 16}, 64, true},
};

std::string LinearName(const LinearCase& c, WeightLayout layout) {
  return absl::StrCat(DimsName(c.x), " to ", c.out,
                      layout == WeightLayout::kOutIn ? " [out, in]" : " [in, out]",
                      c.bias ? "" : " no bias");
}

HostTensor WeightInput(int64_t in, int64_t out, WeightLayout layout, int64_t seed) {
  return Spread(layout == WeightLayout::kOutIn ? Dimensions{out, in} : Dimensions{in, out}, -1, 1,
                seed);
}

/// x w + bias by basic operations.
Tensor LinearOracle(const Tensor& x, const Tensor& w, const Tensor& bias, WeightLayout layout) {
  const bool out_in = layout == WeightLayout::kOutIn;
  Dimensions result = x.shape().dims();
  const int64_t rows = CountOf({result.begin(), result.end() - 1});
  result.back() = w.dim(out_in ? 0 : 1);
  const Tensor y = Matmul(x.Reshape({rows, x.dim(-1)}), w, {.transpose_b = out_in}).Reshape(result);
  return bias.defined() ? Add(y, bias) : y;
}

using LinearFunction = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, WeightLayout);

OpCase MakeLinearCase(const LinearCase& c, WeightLayout layout, LinearFunction op,
                      LinearFunction oracle) {
  OpCase k{.name = LinearName(c, layout),
           .inputs = {Spread(c.x, -1, 1, 1), WeightInput(c.x.back(), c.out, layout, 2)}};
  if (c.bias) k.inputs.push_back(Spread({c.out}, -1, 1, 3));
  const auto calling = [layout, bias = c.bias](LinearFunction f) {
    return [=](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{f(x[0], x[1], bias ? x[2] : Tensor(), layout)};
    };
  };
  k.run = calling(op);
  k.oracle = calling(oracle);
  return k;
}

void AddLinear(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Linear", .covers = {"Linear"}};
  e.value = e.gradient = kSumOfProducts;
  e.why = kSumOfProductsWhy;
  e.f32_gradients = {1, 2};
  for (const LinearCase& c : kLinearCases) {
    for (const WeightLayout layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
      e.cases.push_back(MakeLinearCase(c, layout, Linear, LinearOracle));
    }
  }
  e.errors = {
      {"inputs",
       [](Device& d) {
         Linear(F32(d, {2, 3}), F32(d, {4, 5}), Tensor());
       },
       {"linear", "f32 [2, 3]", "f32 [4, 5]"}},
      {"inputs, [out, in]",
       [](Device& d) {
         Linear(F32(d, {2, 3}), F32(d, {3, 5}), Tensor(), WeightLayout::kOutIn);
       },
       {"linear", "f32 [2, 3]", "f32 [3, 5]"}},
      {"bias",
       [](Device& d) {
         Linear(F32(d, {2, 3}), F32(d, {3, 5}), F32(d, {3}));
       },
       {"linear", "f32 [3]", "5"}},
      {"rank of the weight",
       [](Device& d) {
         Linear(F32(d, {2, 3}), F32(d, {3}), Tensor());
       },
       {"linear", "f32 [3]", "f32 [2, 3]"}},
      {"scalar",
       [](Device& d) {
         Linear(F32(d, {}), F32(d, {1, 1}), Tensor());
       },
       {"linear", "f32 []"}},
      {"dtypes",
       [](Device& d) {
         Linear(F32(d, {2, 3}), Bf16(d, {3, 5}), Tensor());
       },
       {"linear", "f32 [2, 3]", "bf16 [3, 5]"}},
      {"undefined weight",
       [](Device& d) {
         Linear(F32(d, {2, 3}), Tensor(), Tensor());
       },
       {"linear", "undefined"}},
  };
  table.push_back(std::move(e));
}

Tensor LinearGeluOracle(const Tensor& x, const Tensor& w, const Tensor& bias, WeightLayout layout) {
  return GeluOracle(LinearOracle(x, w, bias, layout));
}

void AddLinearGelu(std::vector<OpEntry>& table) {
  OpEntry e{.name = "LinearGelu", .covers = {"LinearGelu"}};
  // The sum, up to 8, may be rounded before GELU, whose slope stays below 1.13.
  e.value = {.element = 1, .tensor = 1.13, .compute = 16, .floor = 8};
  // Gradients are sums of up to 71 terms, each with a slope of the rounded sum (gelu'' is below
  // 1.2) and a rounding of its own.
  e.gradient = {.element = 1, .tensor = 2, .compute = 16, .floor = 4};
  e.why = "as Linear; what goes into GELU, and its gradient, are rounded to the dtype";
  for (const LinearCase& c : kLinearCases) {
    for (const WeightLayout layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
      e.cases.push_back(MakeLinearCase(c, layout, LinearGelu, LinearGeluOracle));
    }
  }
  e.errors = {
      {"inputs",
       [](Device& d) {
         LinearGelu(F32(d, {2, 3}), F32(d, {4, 5}), Tensor());
       },
       {"linear_gelu", "f32 [2, 3]", "f32 [4, 5]"}},
      {"bias",
       [](Device& d) {
         LinearGelu(F32(d, {2, 3}), F32(d, {3, 5}), F32(d, {3}));
       },
       {"linear_gelu", "f32 [3]", "5"}},
      {"undefined weight",
       [](Device& d) {
         LinearGelu(F32(d, {2, 3}), Tensor(), Tensor());
       },
       {"linear_gelu", "undefined"}},
  };
  table.push_back(std::move(e));
}

struct FeedForwardCase {
  Dimensions x;
  int64_t hidden, out;
  bool bias;
};

OpCase MakeFeedForwardCase(const FeedForwardCase& c, WeightLayout layout) {
  OpCase k{.name = absl::StrCat(LinearName({c.x, c.hidden, c.bias}, layout), " to ", c.out),
           .inputs = {Spread(c.x, -1, 1, 1), WeightInput(c.x.back(), c.hidden, layout, 2),
                      WeightInput(c.hidden, c.out, layout, 3)}};
  if (c.bias) {
    k.inputs.push_back(Spread({c.hidden}, -1, 1, 4));
    k.inputs.push_back(Spread({c.out}, -1, 1, 5));
  }
  k.run = [layout, bias = c.bias](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{
        FeedForward(x[0], x[1], bias ? x[3] : Tensor(), x[2], bias ? x[4] : Tensor(), layout)};
  };
  k.oracle = [layout, bias = c.bias](const std::vector<Tensor>& x) {
    const Tensor hidden = LinearGeluOracle(x[0], x[1], bias ? x[3] : Tensor(), layout);
    return std::vector<Tensor>{LinearOracle(hidden, x[2], bias ? x[4] : Tensor(), layout)};
  };
  return k;
}

void AddFeedForward(std::vector<OpEntry>& table) {
  OpEntry e{.name = "FeedForward", .covers = {"FeedForward"}};
  e.value = {.element = 1, .tensor = 2, .compute = 16, .floor = 8};
  e.gradient = {.element = 1, .tensor = 2, .compute = 16, .floor = 8};
  e.why = "as LinearGelu, whose roundings are summed over up to 64 hidden units";
  const FeedForwardCase cases[] = {
      {{1}, 1, 1, true},         {{5}, 3, 2, false},       {{0, 5}, 3, 2, true},
      {{3, 0}, 5, 2, true},      {{3, 5}, 0, 2, true},     {{2, 3, 5}, 7, 5, true},
      {{2, 3, 5}, 7, 3, false},  {{13, 17}, 31, 17, true}, {{1, 8}, 16, 8, true},
      {{2, 4, 24}, 8, 5, false}, {{40, 16}, 64, 16, true},
  };
  for (const FeedForwardCase& c : cases) {
    for (const WeightLayout layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
      e.cases.push_back(MakeFeedForwardCase(c, layout));
    }
  }
  e.errors = {
      {"first weight",
       [](Device& d) {
         FeedForward(F32(d, {2, 3}), F32(d, {4, 5}), Tensor(), F32(d, {5, 3}), Tensor());
       },
       {"feed_forward", "f32 [2, 3]", "f32 [4, 5]"}},
      {"second weight",
       [](Device& d) {
         FeedForward(F32(d, {2, 3}), F32(d, {3, 5}), Tensor(), F32(d, {4, 3}), Tensor());
       },
       {"feed_forward", "f32 [4, 3]", "f32 [3, 5]"}},
      {"dtypes",
       [](Device& d) {
         FeedForward(F32(d, {2, 3}), F32(d, {3, 5}), Tensor(), Bf16(d, {5, 3}), Tensor());
       },
       {"feed_forward", "f32 [2, 3]", "bf16 [5, 3]"}},
      {"undefined weight",
       [](Device& d) {
         FeedForward(F32(d, {2, 3}), F32(d, {3, 5}), Tensor(), Tensor(), Tensor());
       },
       {"feed_forward", "undefined"}},
  };
  table.push_back(std::move(e));
}

}  // namespace

void AddLinearOps(std::vector<OpEntry>& table) {
  AddLinear(table);
  AddLinearGelu(table);
  AddFeedForward(table);
}

}  // namespace pando
