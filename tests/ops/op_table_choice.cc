// Operations that choose between elements of two tensors.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/arithmetic.h"
#include "tests/ops/op_table.h"
#include "tests/ops/op_table_host.h"

namespace pando {
namespace {

using BinaryOp = Tensor (*)(const Tensor&, const Tensor&);

OpFunction Call(BinaryOp op) {
  return [op](const std::vector<Tensor>& x) { return std::vector<Tensor>{op(x[0], x[1])}; };
}

/// Inputs of which no two elements are equal, so that the choice stays as it is nearby.
HostTensors DistinctPair(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const int64_t in_a = CountOf(a);
  const std::vector<double> all = Distinct({in_a + CountOf(b)}).values;
  return {{a, {all.begin(), all.begin() + in_a}}, {b, {all.begin() + in_a, all.end()}}};
}

/// Equal elements: the gradient goes to a, as in Where(a is taken, a, b).
OpCase Ties(BinaryOp op, std::vector<int32_t> takes_a) {
  return {.name = "ties",
          .inputs = {{{4}, {1, 2, 0, -1}}, {{4}, {1, 1, 0.5, -1}}},
          .run = Call(op),
          .oracle =
              [takes_a = std::move(takes_a)](const std::vector<Tensor>& x) {
                const Tensor condition = Constant(takes_a, {4}, x[0].device());
                return std::vector<Tensor>{Where(condition, x[0], x[1])};
              },
          .smooth = false};
}

void AddExtreme(const char* function, BinaryOp op, double (*f)(double, double),
                std::vector<int32_t> takes_a, const std::string& name,
                std::vector<OpEntry>& table) {
  OpEntry e{.name = function, .covers = {function}};
  e.gradient = {.element = 1, .compute = 4, .floor = 2};
  e.why = "values are copies; a broadcast operand's gradient is a sum, in f32 for so few terms";
  e.f32_gradients = {0, 1};
  const std::vector<std::vector<std::vector<int64_t>>> pairs = {
      {{1}, {1}},
      {{0}, {0}},
      {{7}, {7}},
      {{3, 1, 5}, {2, 1}},
      {{1, 13}, {11, 1}},
      {{2, 0}, {1}},
      {{2}, {}},
      {{8}, {8}},
      {{17}, {1}},
      {{1}, {64}},
      {{257}, {257}},
      {{3, 8}, {8}},
      {{3, 1}, {3, 16}},
      {{5, 9}, {5, 9}},
      {{2, 3, 8}, {3, 8}},
      {{2, 3, 8}, {2, 1, 8}},
      {{2, 3, 7}, {1, 3, 1}},
      {{4, 1, 5}, {3, 5}},
      {{29, 24}, {24}},
      {{2, 1, 3, 1, 2, 1}, {1, 2, 1, 2, 1, 8}}};
  for (const auto& p : pairs) {
    e.cases.push_back({.name = absl::StrCat(DimsName(p[0]), " ", DimsName(p[1])),
                       .inputs = DistinctPair(p[0], p[1]),
                       .run = Call(op),
                       .host = HostBroadcast(f)});
  }
  e.cases.push_back(Ties(op, std::move(takes_a)));
  e.errors = {
      {"shapes",
       [op](Device& d) {
         op(F32(d, {2, 3}), F32(d, {3, 2}));
       },
       {name, "[2, 3]", "[3, 2]"}},
      {"dtypes", [op](Device& d) { op(F32(d, {2}), Bf16(d, {2})); }, {name, "f32 [2]", "bf16 [2]"}},
      {"integers", [op](Device& d) { op(I32(d, {2}), I32(d, {2})); }, {name, "i32 [2]"}}};
  table.push_back(std::move(e));
}

struct WhereShapes {
  std::vector<int64_t> condition, a, b;
};

OpCase WhereCase(const WhereShapes& s) {
  std::vector<int32_t> condition;
  HostTensor host_condition{s.condition, {}};
  for (int64_t i = 0; i < CountOf(s.condition); ++i) {
    // Any value but 0 is true.
    condition.push_back(static_cast<int32_t>((i * 7) % 5) - 2);
    host_condition.values.push_back(condition.back());
  }
  return {.name = absl::StrCat(DimsName(s.condition), " ", DimsName(s.a), " ", DimsName(s.b)),
          .inputs = {Spread(s.a, -2, 2, 1), Spread(s.b, -2, 2, 2)},
          .run =
              [condition, s](const std::vector<Tensor>& x) {
                const Tensor c = Constant(condition, Shape(s.condition), x[0].device());
                return std::vector<Tensor>{Where(c, x[0], x[1])};
              },
          .host =
              [host_condition](const HostTensors& x) {
                HostTensor y{
                    HostBroadcastDims(host_condition.dims, HostBroadcastDims(x[0].dims, x[1].dims)),
                    {}};
                ForEachIndex(y.dims, [&](const std::vector<int64_t>& i) {
                  y.values.push_back(BroadcastAt(host_condition, i) != 0 ? BroadcastAt(x[0], i)
                                                                         : BroadcastAt(x[1], i));
                });
                return HostTensors{y};
              }};
}

void AddWhere(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Where", .covers = {"Where"}};
  e.gradient = {.element = 1, .compute = 4, .floor = 2};
  e.why = "values are copies; a broadcast operand's gradient is a sum, in f32 for so few terms";
  e.f32_gradients = {0, 1};
  const WhereShapes shapes[] = {
      {{1}, {1}, {1}},
      {{0}, {0}, {0}},
      {{13, 37}, {13, 37}, {13, 37}},
      {{5, 7}, {1}, {7}},
      {{7}, {5, 7}, {}},
      {{2, 1, 5}, {3, 1}, {5}},
      {{}, {2, 3}, {2, 3}},
      {{2}, {2}, {2}},
      {{8}, {8}, {8}},
      {{9}, {9}, {1}},
      {{1}, {64}, {64}},
      {{2053}, {2053}, {2053}},
      {{3, 1}, {3, 8}, {3, 8}},
      {{8}, {3, 8}, {3, 1}},
      {{3, 16}, {16}, {3, 16}},
      {{3, 9}, {3, 1}, {9}},
      {{4, 1, 8}, {6, 8}, {4, 6, 1}},
      {{2, 3, 8}, {2, 1, 8}, {1, 3, 8}},
      {{2, 3, 7}, {}, {3, 1}},
      {{149, 24}, {24}, {149, 24}},
      {{3, 520}, {3, 1}, {520}},
      {{2, 1, 3, 1, 2, 1}, {2, 1, 3, 1, 8}, {2, 2, 1, 1, 1, 8}},
      {{0, 3}, {3}, {1, 1}},
  };
  for (const WhereShapes& s : shapes) e.cases.push_back(WhereCase(s));
  e.errors = {
      {"shapes",
       [](Device& d) {
         Where(I32(d, {2}), F32(d, {2, 3}), F32(d, {2, 4}));
       },
       {"where", "[2, 3]", "[2, 4]"}},
      {"shape of the condition",
       [](Device& d) { Where(I32(d, {5}), F32(d, {3}), F32(d, {3})); },
       {"where", "[5]", "[3]"}},
      {"dtypes",
       [](Device& d) { Where(I32(d, {3}), F32(d, {3}), Bf16(d, {3})); },
       {"where", "f32 [3]", "bf16 [3]"}},
      {"floating condition",
       [](Device& d) { Where(F32(d, {3}), F32(d, {3}), F32(d, {3})); },
       {"where", "f32 [3]", "i32"}},
      {"undefined",
       [](Device& d) { Where(I32(d, {3}), F32(d, {3}), Tensor()); },
       {"where", "undefined"}},
      {"undefined condition",
       [](Device& d) { Where(Tensor(), F32(d, {3}), F32(d, {3})); },
       {"where", "undefined"}},
  };
  table.push_back(std::move(e));
}

}  // namespace

void AddChoiceOps(std::vector<OpEntry>& table) {
  AddExtreme(
      "Maximum", Maximum, [](double a, double b) { return std::max(a, b); }, {1, 1, 0, 1},
      "maximum", table);
  AddExtreme(
      "Minimum", Minimum, [](double a, double b) { return std::min(a, b); }, {1, 0, 1, 1},
      "minimum", table);
  AddWhere(table);
}

}  // namespace pando
