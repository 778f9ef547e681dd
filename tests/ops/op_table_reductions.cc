// Sums, means and largest elements.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/arithmetic.h"
#include "ops/reduce.h"
#include "tests/ops/op_table.h"
#include "tests/ops/op_table_host.h"

namespace pando {
namespace {

using ReduceOp = Tensor (*)(const Tensor&, std::vector<int64_t>, bool);

struct ReduceCase {
  std::vector<int64_t> shape, dims;
  bool keep_dims = false;
};

const ReduceCase kCases[] = {
    {{1}, {}},
    {{7}, {0}},
    {{}, {}},
    {{2, 3, 5}, {}},
    {{2, 3, 5}, {1}},
    {{2, 3, 5}, {-1}, true},
    {{2, 3, 5}, {0, 2}},
    {{2, 3, 5}, {2, 0}, true},
    {{13, 37}, {0}},
    {{13, 37}, {1}},
    {{1, 601}, {1}},
    {{4, 0}, {0}},
    {{8}, {0}},
    {{2051}, {}},
    {{257, 2}, {0}},
    {{4, 5, 6, 7}, {-2}},
    {{9, 8}, {0}},
    {{9, 8}, {1}},
    {{67, 16}, {0}},
    {{3, 520}, {1}},
    {{3, 1031}, {1}},
    {{521, 40}, {0}},
    {{5, 64, 8}, {1}},
    {{31, 3, 2}, {1}},
    {{4, 9, 24}, {0, 2}},
    {{6, 8, 16}, {1, 2}, true},
    {{2, 3, 2, 3, 2, 3}, {0, 2, 4}},
    {{3, 2, 3, 2, 3, 8}, {1, 3, 5}, true},
};

std::string CaseName(const ReduceCase& c) {
  return absl::StrCat(DimsName(c.shape), " over ", DimsName(c.dims), c.keep_dims ? " kept" : "");
}

/// combine(values) of each group of elements that becomes one.
HostFunction HostReduce(const ReduceCase& c,
                        const std::function<double(const std::vector<double>&)>& combine) {
  return [c, combine](const HostTensors& x) {
    const auto rank = static_cast<int64_t>(c.shape.size());
    std::vector<bool> gone(c.shape.size(), c.dims.empty());
    for (const int64_t d : c.dims) gone[d < 0 ? d + rank : d] = true;
    HostTensor kept{c.shape, {}}, y;
    for (int64_t d = 0; d < rank; ++d) {
      if (gone[d]) kept.dims[d] = 1;
      if (!gone[d] || c.keep_dims) y.dims.push_back(kept.dims[d]);
    }
    std::vector<std::vector<double>> groups(CountOf(kept.dims));
    ForEachIndex(c.shape, [&](const std::vector<int64_t>& index) {
      size_t group = 0;
      for (int64_t d = 0; d < rank; ++d) group = group * kept.dims[d] + (gone[d] ? 0 : index[d]);
      groups[group].push_back(BroadcastAt(x[0], index));
    });
    for (const auto& g : groups) y.values.push_back(combine(g));
    return HostTensors{y};
  };
}

double SumOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum;
}

double MeanOf(const std::vector<double>& values) {
  return SumOf(values) / static_cast<double>(values.size());
}

double MaxOf(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

OpFunction Call(ReduceOp op, const ReduceCase& c) {
  return [op, c](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{op(x[0], c.dims, c.keep_dims)};
  };
}

std::vector<OpError> ReduceErrors(const std::string& name, ReduceOp op) {
  return {
      {"no such dimension",
       [op](Device& d) {
         op(F32(d, {2, 3}), {2}, false);
       },
       {name, "[2, 3]", "[2]"}},
      {"too negative",
       [op](Device& d) {
         op(F32(d, {2, 3}), {-3}, false);
       },
       {name, "[2, 3]"}},
      {"twice",
       [op](Device& d) {
         op(F32(d, {2, 3}), {1, -1}, true);
       },
       {name, "[2, 3]"}},
      {"integers",
       [op](Device& d) {
         op(I32(d, {2, 3}), {}, false);
       },
       {name, "i32 [2, 3]"}},
      {"undefined", [op](Device&) { op(Tensor(), {}, false); }, {name, "undefined"}},
  };
}

OpEntry ReduceEntry(const char* function, const std::string& name, ReduceOp op,
                    double (*combine)(const std::vector<double>&)) {
  OpEntry e{.name = function, .covers = {function}};
  for (const ReduceCase& c : kCases) {
    const bool max = op == Max;
    e.cases.push_back({.name = CaseName(c),
                       .inputs = {max ? Distinct(c.shape) : Spread(c.shape, -2, 2)},
                       .run = Call(op, c),
                       .host = HostReduce(c, combine)});
  }
  e.errors = ReduceErrors(name, op);
  return e;
}

/// The gradient goes to the first of the largest.
OpCase MaxTies() {
  const std::vector<double> first = {0, 1, 0, 1, 0, 0};
  return {.name = "ties",
          .inputs = {{{2, 3}, {1, 2, 2, 0, -1, 0}}},
          .run = Call(Max, {{2, 3}, {1}}),
          .oracle =
              [first](const std::vector<Tensor>& x) {
                const Tensor mask = Constant(first, {2, 3}, x[0].device());
                return std::vector<Tensor>{Sum(Mul(x[0], mask), {1})};
              },
          .smooth = false};
}

}  // namespace

void AddReductions(std::vector<OpEntry>& table) {
  OpEntry sum = ReduceEntry("Sum", "sum", Sum, SumOf);
  // Up to 256 terms of up to 2 are added in f32, from there on in f64.
  sum.value = {.element = 1, .compute = 16, .floor = 8};
  sum.why = "runs of up to 256 terms are added in f32, then f64; the gradient is copied";
  // Sums of nothing are 0.
  const ReduceCase nothing{{0, 3}, {0}};
  sum.cases.push_back({.name = CaseName(nothing),
                       .inputs = {{{0, 3}, {}}},
                       .run = Call(Sum, nothing),
                       .host = HostReduce(nothing, SumOf)});
  OpEntry mean = ReduceEntry("Mean", "mean", Mean, MeanOf);
  mean.value = {.element = 1, .compute = 4, .floor = 1};
  mean.gradient = {.element = 1, .compute = 1};
  mean.why =
      "a sum divided in f64, rounded once; the gradient is multiplied by 1 / n in one rounding";
  OpEntry max = ReduceEntry("Max", "max", Max, MaxOf);
  max.why = "copies";
  max.cases.push_back(MaxTies());
  table.push_back(std::move(sum));
  table.push_back(std::move(mean));
  table.push_back(std::move(max));
}

}  // namespace pando
