// Fused operations on rows: normalisation, GELU, softmax, dropout.
#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/random.h"
#include "ops/arithmetic.h"
#include "ops/dropout.h"
#include "ops/gelu.h"
#include "ops/layer_norm.h"
#include "ops/reduce.h"
#include "tests/ops/op_table.h"

namespace pando {
namespace {

using Dimensions = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;

// Rows of whole packs of 16 bytes or not, that a GPU gives to a warp or a block, keeps in registers
// or, the longest, reads again; and so many that partial sums have several rows to a thread.
const std::vector<Dimensions> kWideRows = {{3, 8},     {17, 64},  {5, 31},   {2, 768}, {3, 1280},
                                           {1, 2056},  {2, 4100}, {2, 4099}, {65, 24}, {9, 129},
                                           {1, 16392}, {7, 520},  {4500, 8}};

Tensor LayerNormOracle(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor d = Sub(x, Mean(x, {-1}, true));
  const Tensor rstd = Reciprocal(Sqrt(Affine(Mean(Square(d), {-1}, true), 1, eps)));
  const Tensor y = Mul(Mul(d, rstd), weight);
  return bias.defined() ? Add(y, bias) : y;
}

// Normalised values are of order 1 (up to 4), and come about in some ten roundings in f32, where
// the mean's is taken relative to x. What is summed over rows has up to 13 terms.
const Bound kNormValue = {.element = 1, .compute = 8, .floor = 2};
const Bound kNormGradient = {.element = 1, .compute = 8, .floor = 4};
// The error of a long row's mean enters all of its elements alike: too much for differences.
bool IsSmoothNorm(const Dimensions& dims) { return dims.back() < 4096; }
const char kNormWhy[] =
    "all in f32, at magnitudes of a few; one rounding of results and of sums over rows";

OpCase LayerNormCase(const Dimensions& dims, bool bias, double eps) {
  OpCase c{.name = absl::StrCat(DimsName(dims), bias ? "" : " no bias", " eps ", eps),
           .inputs = {Spread(dims, -2, 3, 1), Spread({dims.back()}, 0.5, 1.5, 2)},
           .smooth = IsSmoothNorm(dims)};
  if (bias) c.inputs.push_back(Spread({dims.back()}, -1, 1, 3));
  const auto with = [bias](const Tensors& x) { return bias ? x[2] : Tensor(); };
  c.run = [=](const Tensors& x) { return Tensors{LayerNorm(x[0], x[1], with(x), eps)}; };
  c.oracle = [=](const Tensors& x) { return Tensors{LayerNormOracle(x[0], x[1], with(x), eps)}; };
  return c;
}

/// Two layers, whose weights and biases are the inputs of these indices.
OpCase SharedCase(const char* name, double additions, std::array<int, 2> first,
                  std::array<int, 2> second) {
  OpCase c{.name = name, .inputs = {Spread({5, 13}, -2, 3, 1)}, .additions = additions};
  const int vectors = std::max({first[0], first[1], second[0], second[1]});
  for (int i = 1; i <= vectors; ++i) c.inputs.push_back(Spread({13}, 0.5, 1.5, i + 1));
  const auto layers = [=](auto norm) {
    return [=](const Tensors& x) {
      return Tensors{norm(x[0], x[first[0]], x[first[1]], 0.25),
                     norm(x[0], x[second[0]], x[second[1]], 0.25)};
    };
  };
  c.run = layers(LayerNorm);
  c.oracle = layers(LayerNormOracle);
  return c;
}

void AddLayerNorm(std::vector<OpEntry>& table) {
  OpEntry e{.name = "LayerNorm", .covers = {"LayerNorm"}};
  e.value = kNormValue;
  e.gradient = kNormGradient;
  e.why = kNormWhy;
  e.f32_gradients = {1, 2};
  for (const bool bias : {true, false}) {
    // With one element to normalise, eps keeps the variance of 0 in hand.
    for (const Dimensions& dims : {Dimensions{1}, {0, 5}, {3, 1}, {2, 3, 7}, {13, 67}, {5, 601}}) {
      e.cases.push_back(LayerNormCase(dims, bias, dims.back() == 1 ? 0.5 : 1e-5));
    }
  }
  e.cases.push_back(LayerNormCase({3, 0}, true, 1e-5));
  for (const Dimensions& dims : kWideRows) e.cases.push_back(LayerNormCase(dims, true, 1e-5));
  // The sums of one call are added to those of another, for one of the two or for both, or have one
  // place.
  e.cases.push_back(SharedCase("weight of two layers", 1, {1, 2}, {1, 3}));
  e.cases.push_back(SharedCase("bias of two layers", 1, {1, 2}, {3, 2}));
  e.cases.push_back(SharedCase("weight and bias in one", 2, {1, 1}, {2, 2}));
  e.errors = {
      {"weight",
       [](Device& d) {
         LayerNorm(F32(d, {2, 3}), F32(d, {4}), F32(d, {4}));
       },
       {"layer_norm", "f32 [2, 3]", "f32 [4]"}},
      {"bias",
       [](Device& d) {
         LayerNorm(F32(d, {2, 3}), F32(d, {3}), F32(d, {2}));
       },
       {"layer_norm", "f32 [2, 3]", "f32 [2]"}},
      {"dtypes",
       [](Device& d) {
         LayerNorm(Bf16(d, {2, 3}), F32(d, {3}), F32(d, {3}));
       },
       {"layer_norm", "bf16 [2, 3]", "f32 [3]"}},
      {"scalar",
       [](Device& d) { LayerNorm(F32(d, {}), F32(d, {1}), Tensor()); },
       {"layer_norm", "f32 []"}},
      {"undefined weight",
       [](Device& d) {
         LayerNorm(F32(d, {2, 3}), Tensor(), Tensor());
       },
       {"layer_norm", "undefined"}},
  };
  table.push_back(std::move(e));
}

enum class Used { kBoth, kSum, kNormalized };

Tensors Select(const Tensor& sum, const Tensor& normalized, Used used) {
  if (used == Used::kSum) return {sum};
  if (used == Used::kNormalized) return {normalized};
  return {sum, normalized};
}

OpCase ResidualCase(const Dimensions& dims, Used used, const char* name) {
  OpCase c{.name = absl::StrCat(DimsName(dims), name),
           .inputs = {Spread(dims, -2, 2, 1), Spread(dims, -2, 2, 2),
                      Spread({dims.back()}, 0.5, 1.5, 3), Spread({dims.back()}, -1, 1, 4)},
           .smooth = IsSmoothNorm(dims)};
  c.run = [used](const Tensors& x) {
    const auto y = ResidualLayerNorm(x[0], x[1], x[2], x[3], 0.25);
    return Select(y.sum, y.normalized, used);
  };
  c.oracle = [used](const Tensors& x) {
    const Tensor sum = Add(x[0], x[1]);
    return Select(sum, LayerNormOracle(sum, x[2], x[3], 0.25), used);
  };
  return c;
}

void AddResidualLayerNorm(std::vector<OpEntry>& table) {
  OpEntry e{.name = "ResidualLayerNorm", .covers = {"ResidualLayerNorm"}};
  // The sum is rounded to the dtype before it is normalised, as the next layers will see it.
  e.value = {.element = 1, .tensor = 1, .compute = 8, .floor = 2};
  e.gradient = {.element = 1, .tensor = 1, .compute = 8, .floor = 4};
  e.why = "the sum, rounded, is what is normalised: half a unit of up to 4 enters everything";
  for (const Dimensions& dims : {Dimensions{1}, {0, 5}, {2, 3, 7}, {13, 67}, {1, 16}}) {
    e.cases.push_back(ResidualCase(dims, Used::kBoth, ""));
  }
  for (const Dimensions& dims : kWideRows) e.cases.push_back(ResidualCase(dims, Used::kBoth, ""));
  e.cases.push_back(ResidualCase({5, 13}, Used::kNormalized, " sum unused"));
  OpCase twice = ResidualCase({3, 11}, Used::kBoth, " x is the residual");
  twice.inputs.erase(twice.inputs.begin());
  const auto doubled = [](const OpFunction& f) {
    return [f](const Tensors& x) { return f({x[0], x[0], x[1], x[2]}); };
  };
  twice.run = doubled(twice.run);
  twice.oracle = doubled(twice.oracle);
  twice.additions = 1;
  e.cases.push_back(std::move(twice));
  e.errors = {
      {"residual",
       [](Device& d) {
         ResidualLayerNorm(F32(d, {2, 3}), F32(d, {3, 2}), F32(d, {3}), F32(d, {3}));
       },
       {"residual_layer_norm", "[2, 3]", "[3, 2]"}},
      {"undefined residual",
       [](Device& d) {
         ResidualLayerNorm(F32(d, {2, 3}), Tensor(), F32(d, {3}), F32(d, {3}));
       },
       {"residual_layer_norm", "undefined"}},
      {"weight",
       [](Device& d) {
         ResidualLayerNorm(F32(d, {2, 3}), F32(d, {2, 3}), F32(d, {2}), Tensor());
       },
       {"residual_layer_norm", "[2, 3]", "f32 [2]"}},
  };
  table.push_back(std::move(e));
}

void AddGelu(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Gelu", .covers = {"Gelu"}};
  e.value = {.element = 1, .compute = 4};
  e.gradient = {.element = 1, .compute = 8};
  e.why = "some ulp in f32, and one rounding";
  std::vector<Dimensions> shapes = {{1}, {}, {0}, {3, 0}, {2, 3, 5}, {13, 37}, {8}, {1, 50304}};
  shapes.insert(shapes.end(), kWideRows.begin(), kWideRows.end());
  for (const Dimensions& dims : shapes) {
    e.cases.push_back({.name = DimsName(dims),
                       .inputs = {Spread(dims, -4, 4)},
                       .run = [](const Tensors& x) { return Tensors{Gelu(x[0])}; },
                       .oracle = [](const Tensors& x) { return Tensors{GeluOracle(x[0])}; }});
  }
  e.errors = {{"integers", [](Device& d) { Gelu(I32(d, {3})); }, {"gelu", "i32 [3]"}},
              {"undefined", [](Device&) { Gelu(Tensor()); }, {"gelu", "undefined"}}};
  table.push_back(std::move(e));
}

OpCase BiasGeluCase(const Dimensions& dims, bool reuse_x) {
  return {.name = absl::StrCat(DimsName(dims), reuse_x ? " in x's place" : ""),
          .inputs = {Spread(dims, -3, 3, 1), Spread({dims.back()}, -1, 1, 2)},
          .run =
              [reuse_x](const Tensors& x) {
                // What may be overwritten must not be the leaf itself.
                const Tensor copy = reuse_x ? Affine(x[0], 1) : x[0];
                return Tensors{BiasGelu(copy, x[1], reuse_x)};
              },
          .oracle = [](const Tensors& x) { return Tensors{GeluOracle(Add(x[0], x[1]))}; }};
}

void AddBiasGelu(std::vector<OpEntry>& table) {
  OpEntry e{.name = "BiasGelu", .covers = {"BiasGelu"}};
  // x + bias, up to 4, is rounded; gelu' stays below 1.13.
  e.value = {.element = 1, .tensor = 1.13, .compute = 8, .floor = 4};
  // gelu'' is below 1.2; x + bias, up to 4, is kept rounded, and the bias sums up to 13 rows.
  e.gradient = {.element = 1, .tensor = 2, .compute = 8, .floor = 1};
  e.why = "x + bias is rounded first: half a unit of up to 4, times gelu' or, of every row, gelu''";
  for (const bool reuse : {false, true}) {
    for (const Dimensions& dims : {Dimensions{1}, {0, 3}, {3, 0}, {2, 3, 5}, {13, 67}}) {
      e.cases.push_back(BiasGeluCase(dims, reuse));
    }
  }
  bool reuse = false;
  for (const Dimensions& dims : kWideRows) e.cases.push_back(BiasGeluCase(dims, reuse = !reuse));
  for (const Dimensions& dims : {Dimensions{300, 8}, {33, 5}, {40, 264}}) {
    e.cases.push_back(BiasGeluCase(dims, false));
  }
  e.errors = {
      {"bias",
       [](Device& d) {
         BiasGelu(F32(d, {2, 3}), F32(d, {2}));
       },
       {"gelu", "f32 [2, 3]", "f32 [2]"}},
      {"scalar", [](Device& d) { BiasGelu(F32(d, {}), F32(d, {1})); }, {"gelu", "f32 []"}},
      {"dtypes",
       [](Device& d) {
         BiasGelu(F32(d, {2, 3}), Bf16(d, {3}));
       },
       {"gelu", "f32 [2, 3]", "bf16 [3]"}},
      {"undefined", [](Device& d) { BiasGelu(Tensor(), F32(d, {3})); }, {"gelu", "undefined"}},
  };
  table.push_back(std::move(e));
}

void AddSoftmax(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Softmax", .covers = {"Softmax"}};
  e.value = {.element = 1, .compute = 8};
  e.gradient = {.element = 2, .tensor = 2, .compute = 8, .floor = 0.25};
  e.why =
      "f32, sums of up to 16392 terms; backward reads y as stored: y's rounding enters y (dy - sum "
      "of y dy) twice";
  std::vector<Dimensions> shapes = {{1}, {0}, {3, 0}, {0, 3}, {7, 1}, {2, 3, 5}, {13, 67}, {8}};
  shapes.insert(shapes.end(), kWideRows.begin(), kWideRows.end());
  for (const Dimensions& dims : shapes) {
    e.cases.push_back({.name = DimsName(dims),
                       .inputs = {Spread(dims, -4, 4)},
                       .run = [](const Tensors& x) { return Tensors{Softmax(x[0])}; },
                       .oracle =
                           [](const Tensors& x) {
                             const Tensor y = Exp(x[0]);
                             return Tensors{Div(y, Sum(y, {-1}, true))};
                           }});
  }
  e.errors = {{"scalar", [](Device& d) { Softmax(F32(d, {})); }, {"softmax", "f32 []"}},
              {"integers", [](Device& d) { Softmax(I32(d, {3})); }, {"softmax", "i32 [3]"}},
              {"undefined", [](Device&) { Softmax(Tensor()); }, {"softmax", "undefined"}}};
  table.push_back(std::move(e));
}

const RandomKey kKey = {.seed = 0x123456789ABCDEF, .site = HashName("h.0.drop"), .step = 17};

OpCase DropoutCase(const Dimensions& dims, double p) {
  const std::vector<int64_t> ids = SampleIds(dims[0], int64_t{1} << 33);
  std::vector<double> mask;
  const int64_t elements = dims[0] == 0 ? 0 : CountOf(dims) / dims[0];
  for (int64_t b = 0; b < dims[0]; ++b) {
    for (int64_t i = 0; i < elements; ++i) {
      mask.push_back(RandomBits(kKey, ids[b], i) < DropThreshold(p) ? 0 : 1 / (1 - p));
    }
  }
  return {.name = absl::StrCat(DimsName(dims), " p ", p),
          .inputs = {Spread(dims, -2, 2)},
          .run =
              [ids, p, rows = dims[0]](const Tensors& x) {
                const Tensor samples = Constant(ids, {rows}, x[0].device());
                return Tensors{Dropout(x[0], p, kKey, samples)};
              },
          .oracle =
              [mask](const Tensors& x) {
                return Tensors{Mul(x[0], Constant(mask, x[0].shape(), x[0].device()))};
              }};
}

void AddDropout(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Dropout", .covers = {"Dropout"}};
  e.value = e.gradient = {.element = 1, .compute = 1};
  e.why = "a product with 1 / (1 - p), itself rounded to f32";
  for (const Dimensions& dims : {Dimensions{1}, {0, 3}, {3, 0}, {7}, {2, 3, 5}, {5, 67}}) {
    e.cases.push_back(DropoutCase(dims, 0.3));
  }
  for (const Dimensions& dims : kWideRows) e.cases.push_back(DropoutCase(dims, 0.1));
  e.cases.push_back(DropoutCase({3, 5}, 0));
  e.errors = {
      {"p of 1",
       [](Device& d) {
         Dropout(F32(d, {2, 3}), 1, {}, I64(d, {2}));
       },
       {"dropout", "1"}},
      {"negative p",
       [](Device& d) {
         Dropout(F32(d, {2, 3}), -0.5, {}, I64(d, {2}));
       },
       {"dropout", "-0.5"}},
      {"count of ids",
       [](Device& d) {
         Dropout(F32(d, {2, 3}), 0.5, {}, I64(d, {3}));
       },
       {"dropout", "i64 [3]", "f32 [2, 3]"}},
      {"dtype of ids",
       [](Device& d) {
         Dropout(F32(d, {2, 3}), 0.5, {}, I32(d, {2}));
       },
       {"dropout", "i32 [2]"}},
      {"no ids",
       [](Device& d) {
         Dropout(F32(d, {2, 3}), 0.5, {}, Tensor());
       },
       {"dropout", "undefined"}},
      {"scalar",
       [](Device& d) { Dropout(F32(d, {}), 0.5, {}, I64(d, {1})); },
       {"dropout", "f32 []"}},
      {"integers",
       [](Device& d) { Dropout(I32(d, {2}), 0.5, {}, I64(d, {2})); },
       {"dropout", "i32 [2]"}},
  };
  table.push_back(std::move(e));
}

}  // namespace

void AddRowOps(std::vector<OpEntry>& table) {
  AddLayerNorm(table);
  AddResidualLayerNorm(table);
  AddGelu(table);
  AddBiasGelu(table);
  AddSoftmax(table);
  AddDropout(table);
}

}  // namespace pando
