// Operations that move elements.
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "ops/arithmetic.h"
#include "ops/shape_ops.h"
#include "tests/ops/op_table.h"
#include "tests/ops/op_table_host.h"

namespace pando {
namespace {

using Dimensions = std::vector<int64_t>;

const char kCopies[] = "copies";

OpCase PermuteCase(const Dimensions& dims, const Dimensions& permutation) {
  return {.name = absl::StrCat(DimsName(dims), " by ", DimsName(permutation)),
          .inputs = {Spread(dims, -2, 2)},
          .run =
              [permutation](const std::vector<Tensor>& x) {
                return std::vector<Tensor>{Permute(x[0], permutation)};
              },
          .host =
              [permutation](const HostTensors& x) {
                HostTensor y;
                for (const int64_t p : permutation) y.dims.push_back(x[0].dims[p]);
                ForEachIndex(y.dims, [&](const Dimensions& index) {
                  Dimensions from(index.size());
                  for (size_t d = 0; d < index.size(); ++d) from[permutation[d]] = index[d];
                  y.values.push_back(BroadcastAt(x[0], from));
                });
                return HostTensors{y};
              }};
}

void AddPermute(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Permute", .covers = {"Permute"}, .why = kCopies};
  e.cases = {PermuteCase({1}, {0}),
             PermuteCase({5}, {0}),
             PermuteCase({3, 0, 2}, {2, 0, 1}),
             PermuteCase({2, 3, 5}, {2, 0, 1}),
             PermuteCase({2, 3, 5, 7}, {0, 2, 1, 3}),
             PermuteCase({13, 37}, {1, 0}),
             PermuteCase({}, {}),
             PermuteCase({64, 64}, {1, 0}),
             PermuteCase({65, 130}, {1, 0}),
             PermuteCase({16, 17}, {1, 0}),
             PermuteCase({200, 15}, {1, 0}),
             PermuteCase({3, 40, 72}, {0, 2, 1}),
             PermuteCase({3, 40, 72}, {2, 1, 0}),
             PermuteCase({2, 7, 3, 8}, {0, 2, 1, 3}),
             PermuteCase({2, 16, 4, 64}, {0, 2, 1, 3}),
             PermuteCase({17, 5, 19}, {2, 0, 1}),
             PermuteCase({4, 1, 9}, {1, 2, 0}),
             PermuteCase({2, 3, 20, 3, 18}, {4, 1, 3, 0, 2}),
             PermuteCase({2, 3, 2, 3, 2, 3}, {5, 3, 1, 4, 2, 0}),
             PermuteCase({2, 3, 2, 3, 2, 8}, {4, 2, 0, 3, 1, 5}),
             PermuteCase({1031}, {0})};
  e.errors = {
      {"not a permutation",
       [](Device& d) {
         Permute(F32(d, {2, 3}), {0, 0});
       },
       {"permute", "[2, 3]", "[0, 0]"}},
      {"too short",
       [](Device& d) {
         Permute(F32(d, {2, 3}), {0});
       },
       {"permute", "[2, 3]"}},
      {"negative",
       [](Device& d) {
         Permute(F32(d, {2, 3}), {0, -1});
       },
       {"permute", "[2, 3]"}},
      {"undefined", [](Device&) { Permute(Tensor(), {0}); }, {"permute", "undefined"}},
  };
  table.push_back(std::move(e));
}

void AddTranspose(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Transpose", .covers = {"Transpose"}, .why = kCopies};
  for (const Dimensions& dims : {Dimensions{1, 1}, {0, 3},
                                 {13, 37},         {2, 3, 5},
                                 {2, 0, 3, 7},     {1, 8},
                                 {8, 1},           {2, 2},
                                 {7, 8},           {16, 16},
                                 {15, 200},        {31, 33},
                                 {64, 64},         {63, 65},
                                 {130, 70},        {3, 17, 40},
                                 {2, 2, 64, 16},   {1, 1, 2, 96, 20},
                                 {5, 1, 9, 1},     {2, 1, 2, 3, 19, 23}}) {
    Dimensions permutation(dims.size());
    std::iota(permutation.begin(), permutation.end(), 0);
    std::swap(permutation[dims.size() - 1], permutation[dims.size() - 2]);
    OpCase c = PermuteCase(dims, permutation);
    c.run = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{Transpose(x[0])}; };
    e.cases.push_back(std::move(c));
  }
  e.errors = {
      {"one dimension", [](Device& d) { Transpose(F32(d, {3})); }, {"transpose", "f32 [3]"}},
      {"undefined", [](Device&) { Transpose(Tensor()); }, {"transpose", "undefined"}}};
  table.push_back(std::move(e));
}

/// Elements [start, start + length) of dimension dim of t.
HostTensor HostSlice(const HostTensor& t, int64_t dim, int64_t start, int64_t length) {
  HostTensor y{t.dims, {}};
  y.dims[dim] = length;
  ForEachIndex(y.dims, [&](Dimensions index) {
    index[dim] += start;
    Dimensions within = index;
    int64_t at = 0;
    for (size_t d = 0; d < within.size(); ++d) at = at * t.dims[d] + within[d];
    y.values.push_back(t.values[static_cast<size_t>(at)]);
  });
  return y;
}

OpCase SliceCase(const Dimensions& dims, int64_t dim, int64_t start, int64_t length) {
  const int64_t from_front = dim < 0 ? dim + static_cast<int64_t>(dims.size()) : dim;
  return {.name = absl::StrCat(DimsName(dims), " dim ", dim, " from ", start, ", ", length),
          .inputs = {Spread(dims, -2, 2)},
          .run =
              [=](const std::vector<Tensor>& x) {
                return std::vector<Tensor>{Slice(x[0], dim, start, length)};
              },
          .host =
              [=](const HostTensors& x) {
                return HostTensors{HostSlice(x[0], from_front, start, length)};
              }};
}

void AddSlice(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Slice", .covers = {"Slice"}};
  e.why = "copies; the gradient lands in zeros";
  e.cases = {SliceCase({1}, 0, 0, 1),
             SliceCase({5}, 0, 2, 0),
             SliceCase({0, 3}, 1, 1, 2),
             SliceCase({2, 3, 5}, 1, 1, 2),
             SliceCase({2, 3, 5}, -1, 0, 3),
             SliceCase({13, 37}, 0, 5, 7),
             SliceCase({13, 37}, 1, 36, 1),
             SliceCase({1031}, 0, 8, 1000),
             SliceCase({8}, 0, 0, 8),
             SliceCase({16}, 0, 7, 9),
             SliceCase({3, 16}, 1, 8, 8),
             SliceCase({3, 16}, 1, 1, 8),
             SliceCase({3, 24}, 1, 16, 7),
             SliceCase({64, 96}, 1, 32, 32),
             SliceCase({9, 8}, 0, 1, 7),
             SliceCase({4, 6, 8}, 1, 2, 3),
             SliceCase({4, 6, 8}, 2, 0, 1),
             SliceCase({4, 6, 8, 2}, 2, 4, 4),
             SliceCase({2, 3, 2, 3, 2, 8}, 3, 1, 1),
             SliceCase({2, 3, 2, 3, 2, 3}, -1, 1, 2),
             SliceCase({1, 1, 7}, 0, 0, 1),
             SliceCase({2, 9, 5}, 2, 2, 3),
             SliceCase({7, 1, 16}, 0, 3, 3),
             SliceCase({257}, 0, 1, 255)};
  e.errors = {
      {"beyond the end",
       [](Device& d) {
         Slice(F32(d, {2, 3}), 1, 2, 2);
       },
       {"slice", "[2, 3]"}},
      {"negative",
       [](Device& d) {
         Slice(F32(d, {2, 3}), 1, -1, 2);
       },
       {"slice", "[2, 3]"}},
      {"overflow",
       [](Device& d) {
         Slice(F32(d, {2, 3}), 1, 2, std::numeric_limits<int64_t>::max());
       },
       {"slice", "[2, 3]"}},
      {"no such dimension",
       [](Device& d) {
         Slice(F32(d, {2, 3}), 2, 0, 1);
       },
       {"slice", "[2, 3]"}},
      {"undefined", [](Device&) { Slice(Tensor(), 0, 0, 0); }, {"slice", "undefined"}},
  };
  table.push_back(std::move(e));
}

OpCase ConcatCase(const std::vector<Dimensions>& parts, int64_t dim) {
  OpCase c{.name = absl::StrCat("dim ", dim)};
  for (size_t i = 0; i < parts.size(); ++i) {
    absl::StrAppend(&c.name, " ", DimsName(parts[i]));
    c.inputs.push_back(Spread(parts[i], -2, 2, static_cast<int64_t>(i)));
  }
  c.run = [dim](const std::vector<Tensor>& x) { return std::vector<Tensor>{Concat(x, dim)}; };
  c.host = [dim](const HostTensors& x) {
    const size_t axis =
        static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(x[0].dims.size()) : dim);
    HostTensor y{x[0].dims, {}};
    y.dims[axis] = 0;
    for (const HostTensor& part : x) y.dims[axis] += part.dims[axis];
    ForEachIndex(y.dims, [&](Dimensions index) {
      size_t part = 0;
      while (index[axis] >= x[part].dims[axis]) index[axis] -= x[part++].dims[axis];
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d) at = at * x[part].dims[d] + index[d];
      y.values.push_back(x[part].values[static_cast<size_t>(at)]);
    });
    return HostTensors{y};
  };
  return c;
}

void AddConcat(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Concat", .covers = {"Concat"}, .why = kCopies};
  e.cases = {ConcatCase({{1}}, 0),
             ConcatCase({{2, 3}, {2, 0}, {2, 5}}, 1),
             ConcatCase({{7}, {1}, {13}}, -1),
             ConcatCase({{1, 5, 2}, {3, 5, 2}}, 0),
             ConcatCase({{3, 2, 5}, {3, 4, 5}}, 1),
             ConcatCase({{0, 3}, {0, 3}}, 1),
             ConcatCase({{8}, {8}}, 0),
             ConcatCase({{1031}, {3}, {1000}}, 0),
             ConcatCase({{2, 8}, {2, 16}}, 1),
             ConcatCase({{3, 9}, {3, 8}}, 1),
             ConcatCase({{64, 32}, {64, 32}, {64, 32}}, 1),
             ConcatCase({{1, 7}, {0, 7}, {2, 7}}, 0),
             ConcatCase({{5, 1}, {5, 1}}, 1),
             ConcatCase({{2, 3, 8}, {2, 1, 8}}, 1),
             ConcatCase({{2, 3, 7}, {2, 3, 1}}, 2),
             ConcatCase({{4, 2, 3, 5}, {4, 7, 3, 5}}, 1),
             ConcatCase({{1, 1, 1, 1}, {1, 1, 1, 1}}, 2),
             ConcatCase({{2, 1, 2, 3, 2, 8}, {2, 4, 2, 3, 2, 8}}, 1),
             ConcatCase({{2, 2, 2, 3, 2, 3}, {2, 2, 2, 3, 2, 4}}, 5),
             ConcatCase({{17, 24}, {1, 24}}, 0)};
  e.errors = {
      {"sizes",
       [](Device& d) {
         Concat({F32(d, {2, 3}), F32(d, {3, 3})}, 1);
       },
       {"concat", "[2, 3]", "[3, 3]"}},
      {"ranks",
       [](Device& d) {
         Concat({F32(d, {2, 3}), F32(d, {2})}, 0);
       },
       {"concat", "[2, 3]", "[2]"}},
      {"dtypes",
       [](Device& d) {
         Concat({F32(d, {2}), Bf16(d, {2})}, 0);
       },
       {"concat", "f32 [2]", "bf16 [2]"}},
      {"no such dimension", [](Device& d) { Concat({F32(d, {2})}, 1); }, {"concat", "f32 [2]"}},
      {"nothing", [](Device&) { Concat({}, 0); }, {"concat"}},
      {"undefined",
       [](Device& d) {
         Concat({F32(d, {2}), Tensor()}, 0);
       },
       {"concat", "undefined"}},
      {"undefined first", [](Device&) { Concat({Tensor()}, 0); }, {"concat", "undefined"}},
  };
  table.push_back(std::move(e));
}

OpCase CastCase(const Dimensions& dims, DType dtype) {
  // Values of 8 bits, so exact in every floating dtype, and with a fraction.
  HostTensor x = Spread(dims, -64, 64);
  for (double& v : x.values) v = std::round(v * 2) / 2;
  OpCase c{.name = absl::StrCat(DimsName(dims), " to ", Name(dtype)), .inputs = {x}};
  c.run = [dtype](const std::vector<Tensor>& x) { return std::vector<Tensor>{Cast(x[0], dtype)}; };
  if (IsFloating(dtype)) {
    c.oracle = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{Affine(x[0], 1)}; };
    c.smooth = false;  // nearby values round
  } else {
    c.host = [](const HostTensors& x) {
      HostTensor y = x[0];
      for (double& v : y.values) v = std::trunc(v) + 0.0;
      return HostTensors{y};
    };
    c.differentiable = false;
  }
  return c;
}

void AddCast(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Cast", .covers = {"Cast"}};
  e.why = "values and weights are exact in all dtypes";
  const std::vector<DType> dtypes = {DType::kF32, DType::kBF16, DType::kF16,
                                     DType::kF64, DType::kI32,  DType::kI64};
  for (const DType dtype : dtypes) {
    for (const Dimensions& dims : {Dimensions{1}, {0}, {3, 37}, {2051}}) {
      e.cases.push_back(CastCase(dims, dtype));
    }
  }
  // One dtype after the other, on further shapes.
  const std::vector<Dimensions> shapes = {
      {2},   {3},   {7},   {8},    {9},    {13},    {16},   {31},          {64},
      {257}, {509}, {512}, {5, 8}, {8, 3}, {2, 16}, {1, 1}, {2, 3, 5, 11}, {2, 1, 3, 2, 1, 5}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    e.cases.push_back(CastCase(shapes[i], dtypes[i % dtypes.size()]));
  }
  e.errors = {{"undefined", [](Device&) { Cast(Tensor(), DType::kBF16); }, {"cast", "undefined"}},
              {"undefined to its own",
               [](Device&) { Cast(Tensor(), DType::kF32); },
               {"cast", "undefined"}}};
  table.push_back(std::move(e));
}

OpCase ReshapeCase(const Dimensions& from, const Dimensions& to, const Dimensions& result) {
  return {
      .name = absl::StrCat(DimsName(from), " to ", DimsName(to)),
      .inputs = {Spread(from, -2, 2)},
      .run = [to](const std::vector<Tensor>& x) { return std::vector<Tensor>{x[0].Reshape(to)}; },
      .host =
          [result](const HostTensors& x) {
            return HostTensors{{result, x[0].values}};
          }};
}

void AddReshape(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Reshape", .covers = {"Reshape"}, .why = kCopies};
  e.cases = {ReshapeCase({1}, {}, {}), ReshapeCase({2, 3}, {3, -1}, {3, 2}),
             ReshapeCase({0, 3}, {5, 0}, {5, 0}), ReshapeCase({2, 3, 5}, {30}, {30})};
  for (int64_t n = 1; n <= 16; ++n) {
    e.cases.push_back(ReshapeCase({n, 6, 1}, {2, -1, 3}, {2, n, 3}));
  }
  e.errors = {
      {"another count",
       [](Device& d) {
         F32(d, {2, 3}).Reshape({5});
       },
       {"reshape", "[2, 3]", "[5]"}},
      {"not divisible",
       [](Device& d) {
         F32(d, {2, 3}).Reshape({4, -1});
       },
       {"reshape", "[2, 3]"}},
      {"two unknown",
       [](Device& d) {
         F32(d, {2, 3}).Reshape({-1, -1});
       },
       {"reshape"}},
  };
  table.push_back(std::move(e));
}

}  // namespace

void AddShapeOps(std::vector<OpEntry>& table) {
  AddPermute(table);
  AddTranspose(table);
  AddSlice(table);
  AddConcat(table);
  AddCast(table);
  AddReshape(table);
}

}  // namespace pando
