// Matrix products, and embeddings as products with one-hot matrices.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/arithmetic.h"
#include "ops/embedding.h"
#include "ops/matmul.h"
#include "ops/shape_ops.h"
#include "tests/ops/op_table.h"
#include "tests/ops/op_table_host.h"

namespace pando {
namespace {

using Dimensions = std::vector<int64_t>;

struct MatmulCase {
  Dimensions a, b;
  bool ta = false, tb = false;
};

HostTensors HostMatmul(const MatmulCase& c, const HostTensors& x) {
  const auto rows = [](const HostTensor& t) { return t.dims[t.dims.size() - 2]; };
  const int64_t m = c.ta ? x[0].dims.back() : rows(x[0]);
  const int64_t k = c.ta ? rows(x[0]) : x[0].dims.back();
  const int64_t n = c.tb ? rows(x[1]) : x[1].dims.back();
  const HostTensor& longer = x[0].dims.size() < x[1].dims.size() ? x[1] : x[0];
  HostTensor y{longer.dims, {}};
  y.dims[y.dims.size() - 2] = m;
  y.dims.back() = n;
  ForEachIndex(y.dims, [&](Dimensions index) {
    const int64_t i = index[index.size() - 2], j = index.back();
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) {
      // A shared operand lacks the leading dimensions: BroadcastAt would take them as given.
      const auto at = [&index](const HostTensor& t, int64_t row, int64_t col) {
        Dimensions own(index.end() - static_cast<int64_t>(t.dims.size()), index.end());
        own[own.size() - 2] = row;
        own.back() = col;
        int64_t offset = 0;
        for (size_t d = 0; d < own.size(); ++d) offset = offset * t.dims[d] + own[d];
        return t.values[static_cast<size_t>(offset)];
      };
      sum += (c.ta ? at(x[0], p, i) : at(x[0], i, p)) * (c.tb ? at(x[1], j, p) : at(x[1], p, j));
    }
    y.values.push_back(sum);
  });
  return {y};
}

void AddMatmul(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Matmul", .covers = {"Matmul"}};
  e.value = e.gradient = kSumOfProducts;
  e.why = kSumOfProductsWhy;
  e.f32_gradients = {0, 1};
  std::vector<MatmulCase> cases = {
      {{1, 1}, {1, 1}},       {{0, 3}, {3, 2}},
      {{2, 0}, {0, 3}},       {{2, 3, 5}, {5, 7}},
      {{3, 5}, {2, 5, 7}},    {{0, 3, 5}, {5, 7}},
      {{3, 5}, {0, 5, 7}},    {{2, 3, 2, 3}, {2, 3, 3, 5}},
      {{1, 3, 5}, {5, 7}},    {{13, 67}, {67, 71}},
      {{2, 1, 3}, {2, 3, 1}},
  };
  // All four ways, with operands of their own and shared ones.
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Dimensions a = ta ? Dimensions{5, 3} : Dimensions{3, 5};
      const Dimensions b = tb ? Dimensions{7, 5} : Dimensions{5, 7};
      const auto batched = [](Dimensions d) {
        d.insert(d.begin(), 3);
        return d;
      };
      cases.push_back({a, b, ta, tb});
      cases.push_back({batched(a), batched(b), ta, tb});
      cases.push_back({a, batched(b), ta, tb});
      cases.push_back({batched(a), b, ta, tb});
    }
  }
  for (const MatmulCase& c : cases) {
    e.cases.push_back(
        {.name = absl::StrCat(DimsName(c.a), c.ta ? "' " : " ", DimsName(c.b), c.tb ? "'" : ""),
         .inputs = {Spread(c.a, -1, 1, 1), Spread(c.b, -1, 1, 2)},
         .run =
             [c](const std::vector<Tensor>& x) {
               return std::vector<Tensor>{
                   Matmul(x[0], x[1], {.transpose_a = c.ta, .transpose_b = c.tb})};
             },
         .host = [c](const HostTensors& x) { return HostMatmul(c, x); }});
  }
  e.cases.push_back({.name = "with its own transpose",
                     .inputs = {Spread({2, 3, 5}, -1, 1)},
                     .run =
                         [](const std::vector<Tensor>& x) {
                           return std::vector<Tensor>{Matmul(x[0], x[0], {.transpose_b = true})};
                         },
                     .host =
                         [](const HostTensors& x) {
                           return HostMatmul({{}, {}, false, true}, {x[0], x[0]});
                         },
                     .additions = 1});
  e.errors = {
      {"inner sizes",
       [](Device& d) {
         Matmul(F32(d, {2, 3}), F32(d, {4, 5}));
       },
       {"matmul", "f32 [2, 3]", "f32 [4, 5]"}},
      {"inner sizes, transposed",
       [](Device& d) {
         Matmul(F32(d, {2, 3}), F32(d, {3, 5}), {.transpose_b = true});
       },
       {"matmul", "f32 [2, 3]", "f32 [3, 5] transposed"}},
      {"batches",
       [](Device& d) {
         Matmul(F32(d, {2, 3, 4}), F32(d, {3, 4, 5}));
       },
       {"matmul", "[2, 3, 4]", "[3, 4, 5]"}},
      {"vectors",
       [](Device& d) {
         Matmul(F32(d, {3}), F32(d, {3, 2}));
       },
       {"matmul", "f32 [3]"}},
      {"dtypes",
       [](Device& d) {
         Matmul(F32(d, {2, 3}), Bf16(d, {3, 2}));
       },
       {"matmul", "f32 [2, 3]", "bf16 [3, 2]"}},
      {"integers",
       [](Device& d) {
         Matmul(I32(d, {2, 3}), I32(d, {3, 2}));
       },
       {"matmul", "i32 [2, 3]"}},
      {"undefined",
       [](Device& d) {
         Matmul(F32(d, {2, 3}), Tensor());
       },
       {"matmul", "undefined"}},
  };
  table.push_back(std::move(e));
}

/// Ids below `vocab`: some often, some never.
std::vector<int32_t> Tokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(i % 3 == 0 ? vocab / 2 : (i * 7919 + 1) % vocab));
  }
  return ids;
}

/// [count, vocab] with a 1 at (i, ids[i]).
std::vector<double> OneHot(const std::vector<int32_t>& ids, int64_t vocab) {
  std::vector<double> rows(ids.size() * vocab, 0.0);
  for (size_t i = 0; i < ids.size(); ++i) rows[i * vocab + ids[i]] = 1;
  return rows;
}

struct EmbeddingCase {
  Dimensions tokens;
  int64_t vocab, cols;
  int64_t positions = 0, first = 0;  // positions 0: without
};

OpCase MakeEmbeddingCase(const EmbeddingCase& c) {
  const int64_t count = CountOf(c.tokens);
  const std::vector<int32_t> ids = Tokens(count, c.vocab);
  OpCase k{.name = absl::StrCat(DimsName(c.tokens), " of ", c.vocab, " x ", c.cols),
           .inputs = {Spread({c.vocab, c.cols}, -1, 1, 1)}};
  if (c.positions > 0) {
    absl::StrAppend(&k.name, " from ", c.first);
    k.inputs.push_back(Spread({c.positions, c.cols}, -1, 1, 2));
  }
  k.run = [c, ids](const std::vector<Tensor>& x) {
    const Tensor tokens = Constant(ids, Shape(c.tokens), x[0].device());
    return std::vector<Tensor>{c.positions > 0 ? PositionalEmbedding(tokens, x[0], x[1], c.first)
                                               : Embedding(tokens, x[0])};
  };
  Dimensions result = c.tokens;
  result.push_back(c.cols);
  k.oracle = [c, count, result, one_hot = OneHot(ids, c.vocab)](const std::vector<Tensor>& x) {
    const Tensor rows = Constant(one_hot, {count, c.vocab}, x[0].device());
    Tensor y = Matmul(rows, x[0]).Reshape(result);
    if (c.positions > 0) y = Add(y, Slice(x[1], 0, c.first, c.tokens[1]));
    return std::vector<Tensor>{y};
  };
  return k;
}

void AddEmbedding(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Embedding", .covers = {"Embedding"}};
  e.gradient = {.element = 1, .compute = 16};
  e.why = "values are copies; a row's gradient is an f32 sum over up to 30 uses, rounded once";
  e.f32_gradients = {0};
  for (const EmbeddingCase& c : {EmbeddingCase{{1}, 1, 1},
                                 {{0}, 3, 5},
                                 {{}, 3, 5},
                                 {{2, 3}, 3, 0},
                                 {{7, 13}, 23, 37},
                                 {{2, 3, 5}, 7, 1},
                                 // Rows of whole packs of 16 bytes or not, few and many tokens of
                                 // few and many kinds: what a GPU sorts and sums by other ways.
                                 {{3}, 5, 8},
                                 {{40}, 1, 16},
                                 {{1000}, 3, 8},
                                 {{129}, 2, 31},
                                 {{33}, 1, 1},
                                 {{32}, 1, 7},
                                 {{2, 70}, 300, 24},
                                 {{1030}, 257, 8},
                                 {{64}, 19, 264},
                                 {{9}, 11, 768},
                                 {{5}, 4, 2056},
                                 {{3}, 2, 4099},
                                 {{200}, 255, 5},
                                 {{200}, 256, 12},
                                 {{513}, 4, 64},
                                 {{21}, 13, 40},
                                 {{90}, 5, 1}}) {
    e.cases.push_back(MakeEmbeddingCase(c));
  }
  e.errors = {
      {"rank of the table",
       [](Device& d) { Embedding(I32(d, {3}), F32(d, {5})); },
       {"embedding", "f32 [5]"}},
      {"i64 tokens",
       [](Device& d) {
         Embedding(I64(d, {3}), F32(d, {5, 2}));
       },
       {"embedding", "i64 [3]"}},
      {"integer table",
       [](Device& d) {
         Embedding(I32(d, {3}), I32(d, {5, 2}));
       },
       {"embedding", "i32 [5, 2]"}},
      {"undefined tokens",
       [](Device& d) {
         Embedding(Tensor(), F32(d, {5, 2}));
       },
       {"embedding", "undefined"}},
      {"undefined table",
       [](Device& d) { Embedding(I32(d, {3}), Tensor()); },
       {"embedding", "undefined"}},
  };
  table.push_back(std::move(e));
}

/// Positions are rows of the table itself: both gradients have one place.
OpCase SharedTableCase() {
  OpCase c = MakeEmbeddingCase({{3, 5}, 7, 13, 7, 1});
  c.name = "table and positions in one";
  c.inputs.pop_back();
  const auto shared = [](const OpFunction& f) {
    return [f](const std::vector<Tensor>& x) { return f({x[0], x[0]}); };
  };
  c.run = shared(c.run);
  c.oracle = shared(c.oracle);
  c.additions = 1;
  return c;
}

void AddPositionalEmbedding(std::vector<OpEntry>& table) {
  OpEntry e{.name = "PositionalEmbedding", .covers = {"PositionalEmbedding"}};
  e.value = {.element = 1};
  e.gradient = {.element = 1, .compute = 16};
  e.why = "one sum, one rounding; a row's gradient is an f32 sum over up to 30 uses";
  e.f32_gradients = {0, 1};
  for (const EmbeddingCase& c : {EmbeddingCase{{1, 1}, 1, 1, 1, 0},
                                 {{0, 4}, 3, 5, 4, 0},
                                 {{2, 0}, 3, 5, 4, 4},
                                 {{7, 13}, 23, 37, 13, 0},
                                 {{2, 3}, 7, 5, 11, 5},
                                 {{3, 4}, 5, 8, 4, 0},
                                 {{33, 1}, 3, 16, 1, 0},
                                 {{40, 3}, 2, 31, 4, 1},
                                 {{32, 2}, 5, 24, 2, 0},
                                 {{600, 1}, 7, 8, 3, 2},
                                 {{5, 17}, 300, 12, 20, 3},
                                 {{2, 9}, 19, 264, 9, 0},
                                 {{4, 3}, 11, 768, 3, 0},
                                 {{2, 2}, 4, 2056, 2, 0},
                                 {{1, 3}, 2, 4099, 5, 2},
                                 {{1, 200}, 255, 7, 200, 0},
                                 {{3, 130}, 256, 40, 131, 1},
                                 {{7, 1}, 1, 9, 6, 5},
                                 {{64, 8}, 4, 64, 8, 0},
                                 {{1, 1}, 3, 1600, 1, 0}}) {
    e.cases.push_back(MakeEmbeddingCase(c));
  }
  e.cases.push_back(SharedTableCase());
  e.errors = {
      {"beyond the table",
       [](Device& d) {
         PositionalEmbedding(I32(d, {2, 3}), F32(d, {5, 2}), F32(d, {4, 2}), 2);
       },
       {"embedding", "f32 [4, 2]", "2 to 5"}},
      {"negative position",
       [](Device& d) {
         PositionalEmbedding(I32(d, {2, 3}), F32(d, {5, 2}), F32(d, {4, 2}), -1);
       },
       {"embedding", "-1"}},
      {"columns",
       [](Device& d) {
         PositionalEmbedding(I32(d, {2, 3}), F32(d, {5, 2}), F32(d, {4, 3}));
       },
       {"embedding", "f32 [4, 3]", "f32 [5, 2]"}},
      {"rank of the tokens",
       [](Device& d) {
         PositionalEmbedding(I32(d, {3}), F32(d, {5, 2}), F32(d, {4, 2}));
       },
       {"embedding", "i32 [3]"}},
      {"rank of the table",
       [](Device& d) {
         PositionalEmbedding(I32(d, {2, 3}), F32(d, {5}), F32(d, {4, 2}));
       },
       {"embedding", "f32 [5]"}},
      {"dtypes",
       [](Device& d) {
         PositionalEmbedding(I32(d, {2, 3}), F32(d, {5, 2}), Bf16(d, {4, 2}));
       },
       {"embedding", "f32 [5, 2]", "bf16 [4, 2]"}},
  };
  table.push_back(std::move(e));
}

}  // namespace

void AddMatrixOps(std::vector<OpEntry>& table) {
  AddMatmul(table);
  AddEmbedding(table);
  AddPositionalEmbedding(table);
}

}  // namespace pando
