// Attention against one that stores its scores.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "tests/ops/op_table.h"

namespace pando {
namespace {

using Tensors = std::vector<Tensor>;

struct AttentionCase {
  int64_t batch, length, heads, kv_heads, head_dim;
  bool causal = true;
  std::vector<int32_t> lengths = {};
  double dropout = 0;
  double scale = 0;
};

const RandomKey kKey = {.seed = 42, .site = HashName("h.3.attn"), .step = 5};

/// What the oracle multiplies and chooses with, [B, H, T, T] or [B, 1, T, ...].
struct Masks {
  std::vector<int32_t> sees;    // [B, 1, T, T]
  std::vector<double> counts;   // [B, 1, T, 1]: rows that give something
  std::vector<double> dropout;  // [B, H, T, T]
};

Masks MasksOf(const AttentionCase& c, const std::vector<int64_t>& ids) {
  Masks m;
  for (int64_t b = 0; b < c.batch; ++b) {
    const int64_t length = c.lengths.empty() ? c.length : c.lengths[b];
    for (int64_t i = 0; i < c.length; ++i) {
      m.counts.push_back(i < length ? 1 : 0);
      for (int64_t j = 0; j < c.length; ++j) {
        m.sees.push_back(j < length && (!c.causal || j <= i) ? 1 : 0);
      }
    }
    for (int64_t element = 0; element < c.heads * c.length * c.length; ++element) {
      const bool drop = RandomBits(kKey, ids[b], element) < DropThreshold(c.dropout);
      m.dropout.push_back(drop ? 0 : 1 / (1 - c.dropout));
    }
  }
  return m;
}

AttentionOptions OptionsOf(const AttentionCase& c, const std::vector<int64_t>& ids,
                           Device& device) {
  AttentionOptions o{.heads = c.heads,
                     .kv_heads = c.kv_heads,
                     .causal = c.causal,
                     .scale = c.scale,
                     .dropout = c.dropout,
                     .random = kKey};
  if (c.dropout > 0) o.sample_ids = Constant(ids, {c.batch}, device);
  if (!c.lengths.empty()) o.lengths = Constant(c.lengths, {c.batch}, device);
  return o;
}

/// Columns of heads out of packed activations: [B, heads, T, D].
Tensor Heads(const Tensor& qkv, const AttentionCase& c, int64_t first, int64_t heads) {
  const Tensor columns = Slice(qkv, 2, first * c.head_dim, heads * c.head_dim);
  return Permute(columns.Reshape({c.batch, c.length, heads, c.head_dim}), {0, 2, 1, 3});
}

/// Each key-value head as often as query heads read it.
Tensor Repeated(const Tensor& kv, const AttentionCase& c, const std::vector<double>& ones) {
  const int64_t times = c.heads / c.kv_heads;
  const Tensor shape = Constant(ones, {times, 1, 1}, kv.device());
  return Mul(kv.Reshape({c.batch, c.kv_heads, 1, c.length, c.head_dim}), shape)
      .Reshape({c.batch, c.heads, c.length, c.head_dim});
}

Tensor Oracle(const Tensor& qkv, const AttentionCase& c, const Masks& m,
              const std::vector<double>& ones, const std::vector<double>& low) {
  Device& device = qkv.device();
  const Tensor q = Heads(qkv, c, 0, c.heads);
  const Tensor k = Repeated(Heads(qkv, c, c.heads, c.kv_heads), c, ones);
  const Tensor v = Repeated(Heads(qkv, c, c.heads + c.kv_heads, c.kv_heads), c, ones);
  const double scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.head_dim));
  const Tensor scores = Affine(Matmul(q, k, {.transpose_b = true}), scale);
  const Tensor sees = Constant(m.sees, {c.batch, 1, c.length, c.length}, device);
  const Tensor p = Softmax(Where(sees, scores, Constant(low, {1}, device)));
  const Tensor kept = Mul(p, Constant(m.dropout, {c.batch, c.heads, c.length, c.length}, device));
  const Tensor rows = Constant(m.counts, {c.batch, 1, c.length, 1}, device);
  return Permute(Mul(Matmul(kept, v), rows), {0, 2, 1, 3})
      .Reshape({c.batch, c.length, c.heads * c.head_dim});
}

OpCase MakeCase(const AttentionCase& c) {
  const std::vector<int64_t> ids = SampleIds(c.batch, 1000);
  const int64_t columns = (c.heads + 2 * c.kv_heads) * c.head_dim;
  OpCase k{.name = absl::StrCat(DimsName({c.batch, c.length, columns}), " heads ", c.heads, " of ",
                                c.kv_heads, c.causal ? " causal" : " full",
                                c.lengths.empty() ? "" : " lengths",
                                c.dropout > 0 ? " dropout" : "", c.scale != 0 ? " scaled" : "")};
  // Scores of a few at most: they are exponents, so that of large ones roundings would be large
  // too.
  const double range = c.head_dim > 64 ? 0.5 : 2;
  k.inputs = {Spread({c.batch, c.length, columns}, -range, range)};
  k.run = [c, ids](const Tensors& x) {
    return Tensors{Attention(x[0], OptionsOf(c, ids, x[0].device()))};
  };
  k.oracle = [c, m = MasksOf(c, ids), ones = std::vector<double>(c.heads / c.kv_heads, 1.0),
              low = std::vector<double>{-1e30}](const Tensors& x) {
    return Tensors{Oracle(x[0], c, m, ones, low)};
  };
  return k;
}

std::vector<AttentionCase> Cases() {
  return {
      {1, 1, 1, 1, 1},
      {0, 3, 1, 1, 2},
      {2, 0, 2, 1, 4},
      {2, 5, 3, 3, 7},
      {2, 5, 3, 3, 7, false},
      {1, 71, 2, 1, 8},
      {1, 67, 2, 2, 16, false},
      {1, 13, 6, 2, 4},
      {1, 131, 2, 1, 64},
      {3, 7, 4, 2, 5, false, {7, 3, 0}},
      {3, 11, 2, 2, 4, true, {5, 11, 1}},
      {2, 9, 4, 2, 4, true, {}, 0.25},
      {2, 17, 2, 2, 4, false, {17, 6}, 0.4},
      {1, 6, 2, 2, 4, true, {}, 0, 0.7},
      {1, 64, 1, 1, 8},
      {1, 65, 2, 2, 8, false},
      {2, 33, 8, 1, 4},
      {1, 24, 2, 1, 128},
      {1, 19, 2, 2, 72, false},
      {1, 18, 1, 1, 136},
      {1, 17, 2, 1, 256, false},
      {2, 70, 2, 1, 8, true, {70, 66}},
      {2, 68, 2, 1, 8, false, {0, 68}},
      {1, 130, 2, 2, 4, true, {}, 0.1},
      {1, 68, 2, 1, 16, false, {}, 0.3},
  };
}

std::vector<OpError> AttentionErrors() {
  const auto call = [](const std::vector<int64_t>& dims, const AttentionOptions& options) {
    return [=](Device& d) { Attention(F32(d, dims), options); };
  };
  return {
      {"rank", call({2, 6}, {}), {"attention", "f32 [2, 6]"}},
      {"columns", call({2, 3, 7}, {}), {"attention", "f32 [2, 3, 7]"}},
      {"heads that don't share",
       call({2, 3, 10}, {.heads = 3, .kv_heads = 2}),
       {"attention", "3", "2"}},
      {"no heads", call({2, 3, 6}, {.heads = 0}), {"attention", "0"}},
      {"negative heads", call({2, 3, 6}, {.heads = -1, .kv_heads = -1}), {"attention", "-1"}},
      {"dropout of 1", call({2, 3, 6}, {.dropout = 1}), {"attention", "1"}},
      {"dropout without ids", call({2, 3, 6}, {.dropout = 0.5}), {"attention", "undefined"}},
      {"dtype of ids",
       [](Device& d) {
         Attention(F32(d, {2, 3, 6}), {.dropout = 0.5, .sample_ids = I32(d, {2})});
       },
       {"attention", "i32 [2]"}},
      {"count of lengths",
       [](Device& d) {
         Attention(F32(d, {2, 3, 6}), {.lengths = I32(d, {3})});
       },
       {"attention", "i32 [3]"}},
      {"dtype of lengths",
       [](Device& d) {
         Attention(F32(d, {2, 3, 6}), {.lengths = I64(d, {2})});
       },
       {"attention", "i64 [2]"}},
      {"integers",
       [](Device& d) {
         Attention(I32(d, {2, 3, 6}), {});
       },
       {"attention", "i32 [2, 3, 6]"}},
      {"undefined", [](Device&) { Attention(Tensor(), {}); }, {"attention", "undefined"}},
  };
}

void AddPlain(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Attention", .covers = {"Attention"}};
  // A score of 64 products of up to 4 is off by some units of its partial sums, of up to 30.
  e.value = {.element = 1, .compute = 32, .floor = 2};
  // Row sums of dO O meet keys of up to 2, at a scale of 1 at most.
  e.gradient = {.element = 1, .tensor = 2, .compute = 32, .floor = 2};
  // Probabilities, and their scores' gradients, meet values and keys of up to 2.
  e.tensor_core_roundings = 2;
  e.why = "all in f32 but for the results; backward's row sums read the output as stored";
  for (const AttentionCase& c : Cases()) e.cases.push_back(MakeCase(c));
  e.errors = AttentionErrors();
  table.push_back(std::move(e));
}

/// Token by token and in two parts must give what the whole gives at once.
OpCase CacheCase(const AttentionCase& c, const std::vector<int64_t>& parts) {
  OpCase k = MakeCase(c);
  k.name = absl::StrCat(k.name, " in parts of ", DimsName(parts));
  k.differentiable = false;
  k.oracle = [whole = k.oracle](const Tensors& x) { return whole({x[0].Detach()}); };
  k.run = [c, parts](const Tensors& x) {
    Device& device = x[0].device();
    const int64_t width = c.kv_heads * c.head_dim;
    const int64_t capacity = c.length + 3;
    Tensor keys = Tensor::Empty({c.batch, capacity, width}, x[0].dtype(), device, "keys");
    Tensor values = Tensor::Empty({c.batch, capacity, width}, x[0].dtype(), device, "values");
    Tensors outputs;
    int64_t past = 0;
    for (const int64_t part : parts) {
      const Tensor qkv = Slice(x[0].Detach(), 1, past, part);
      outputs.push_back(AttentionWithCache(qkv, keys, values, past, OptionsOf(c, {}, device)));
      past += part;
    }
    return Tensors{Concat(outputs, 1)};
  };
  return k;
}

void AddWithCache(std::vector<OpEntry>& table) {
  OpEntry e{.name = "AttentionWithCache", .covers = {"AttentionWithCache"}};
  e.value = {.element = 1, .compute = 32, .floor = 2};
  e.tensor_core_roundings = 2;
  e.why = "as Attention";
  e.cases = {CacheCase({1, 1, 1, 1, 1}, {1}),           CacheCase({2, 5, 4, 2, 3}, {1, 1, 1, 1, 1}),
             CacheCase({1, 71, 2, 1, 8}, {40, 31}),     CacheCase({2, 7, 2, 2, 4}, {3, 0, 4}),
             CacheCase({1, 2, 1, 1, 64}, {1, 1}),       CacheCase({1, 67, 2, 2, 64}, {66, 1}),
             CacheCase({2, 65, 6, 2, 16}, {64, 1}),     CacheCase({1, 129, 8, 1, 8}, {128, 1}),
             CacheCase({1, 131, 2, 2, 7}, {128, 2, 1}), CacheCase({1, 40, 1, 1, 128}, {37, 3}),
             CacheCase({1, 35, 2, 1, 256}, {34, 1}),    CacheCase({1, 34, 1, 1, 160}, {32, 2}),
             CacheCase({3, 20, 2, 1, 80}, {17, 3}),     CacheCase({1, 300, 2, 1, 8}, {292, 8}),
             CacheCase({1, 260, 1, 1, 16}, {259, 1}),   CacheCase({1, 100, 4, 4, 12}, {96, 4}),
             CacheCase({2, 90, 12, 4, 4}, {89, 1}),     CacheCase({1, 33, 3, 3, 5}, {16, 16, 1}),
             CacheCase({1, 83, 4, 2, 8, false}, {83}),  CacheCase({1, 600, 2, 2, 8}, {599, 1}),
             CacheCase({2, 23, 16, 2, 8}, {20, 1, 2})};
  const auto call = [](const std::vector<int64_t>& keys, const std::vector<int64_t>& values,
                       int64_t past) {
    return [=](Device& d) {
      Tensor k = F32(d, keys), v = F32(d, values);
      AttentionWithCache(F32(d, {2, 3, 6}), k, v, past, {});
    };
  };
  e.errors = {
      {"too small", call({2, 4, 2}, {2, 4, 2}, 2), {"attention", "2 + 3", "4"}},
      {"negative past", call({2, 4, 2}, {2, 4, 2}, -1), {"attention", "-1"}},
      {"width of keys", call({2, 4, 3}, {2, 4, 2}, 0), {"attention", "f32 [2, 4, 3]"}},
      {"batch of values", call({2, 4, 2}, {1, 4, 2}, 0), {"attention", "f32 [1, 4, 2]"}},
      {"capacities differ", call({2, 5, 2}, {2, 3, 2}, 1), {"attention", "3"}},
      {"undefined cache",
       [](Device& d) {
         Tensor k, v = F32(d, {2, 4, 2});
         AttentionWithCache(F32(d, {2, 3, 6}), k, v, 0, {});
       },
       {"attention", "undefined"}},
  };
  table.push_back(std::move(e));
}

}  // namespace

void AddAttention(std::vector<OpEntry>& table) {
  AddPlain(table);
  AddWithCache(table);
}

}  // namespace pando
