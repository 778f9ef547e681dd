// Operations on elements: of one tensor, and of two broadcast together.
#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "ops/arithmetic.h"
#include "tests/ops/op_table.h"
#include "tests/ops/op_table_host.h"

namespace pando {
namespace {

// Nothing, one element, primes, one short of and one past the 16 bytes that a GPU loads at once,
// several of its blocks, all six dimensions.
const std::vector<std::vector<int64_t>> kShapes = {
    {1},       {0},       {2},       {3},           {7},
    {8},       {9},       {31},      {64},          {257},
    {1031},    {2049},    {5003},    {3, 0, 2},     {13, 37},
    {1, 1, 1}, {2, 3, 5}, {16, 128}, {4, 1, 3, 11}, {2, 1, 3, 2, 1, 5}};

OpFunction Call(Tensor (*op)(const Tensor&)) {
  return [op](const std::vector<Tensor>& x) { return std::vector<Tensor>{op(x[0])}; };
}

OpFunction Call(Tensor (*op)(const Tensor&, const Tensor&)) {
  return [op](const std::vector<Tensor>& x) { return std::vector<Tensor>{op(x[0], x[1])}; };
}

HostFunction Elementwise(double (*f)(double)) {
  return [f](const HostTensors& x) {
    HostTensor y = x[0];
    for (double& v : y.values) v = f(v);
    return HostTensors{y};
  };
}

struct UnaryRow {
  const char* function;
  Tensor (*op)(const Tensor&);
  double (*f)(double);
  double low, high;  // of inputs; of their magnitude if signed_inputs
  bool signed_inputs;
  Bound value, gradient;
  const char* why;
};

// u is the unit roundoff of the dtype. "f(y)": backward reads the rounded output.
const UnaryRow kUnary[] = {
    {"Exp",
     Exp,
     std::exp,
     -2,
     2,
     false,
     {.element = 1, .compute = 2},
     {.element = 2, .compute = 3},
     "value: 1 ulp and the rounding; gradient dy y: y's rounding and its own"},
    {"Log",
     Log,
     std::log,
     0.3,
     3,
     false,
     {.element = 1, .compute = 2},
     {.element = 1, .compute = 1},
     "value: 1 ulp and the rounding; gradient dy / x: one rounding"},
    {"Neg", Neg, [](double x) { return -x; }, -2, 2, false, {}, {}, "exact"},
    {"Sqrt",
     Sqrt,
     std::sqrt,
     0.3,
     3,
     false,
     {.element = 1},
     {.element = 2, .compute = 1},
     "value: one rounding; gradient dy / (2 y): y's rounding and its own"},
    {"Tanh",
     Tanh,
     std::tanh,
     -2,
     2,
     false,
     {.element = 1, .compute = 3},
     {.element = 1, .tensor = 2, .compute = 8, .floor = 1},
     "gradient dy (1 - y)(1 + y): y's rounding enters twice, relative to 1"},
    {"Sigmoid",
     Sigmoid,
     [](double x) { return 1 / (1 + std::exp(-x)); },
     -2,
     2,
     false,
     {.element = 1, .compute = 3},
     {.element = 1, .tensor = 3, .compute = 4, .floor = 0.25},
     "gradient dy y (1 - y): y's rounding enters as |1 - 2 y| <= 3 / 4"},
    {"Silu",
     Silu,
     [](double x) { return x / (1 + std::exp(-x)); },
     -2,
     2,
     false,
     {.element = 1, .compute = 3},
     {.element = 1, .compute = 8},
     "computed from x in f32: some ulp there, and one rounding"},
    {"Relu", Relu, [](double x) { return std::max(x, 0.0); }, 0.1, 2, true, {}, {}, "exact"},
    {"Square",
     Square,
     [](double x) { return x * x; },
     -2,
     2,
     false,
     {.element = 1},
     {.element = 1},
     "one rounding; doubling is exact"},
    {"Reciprocal",
     Reciprocal,
     [](double x) { return 1 / x; },
     0.5,
     2,
     true,
     {.element = 1},
     {.element = 3, .compute = 2},
     "gradient -dy y y: y's rounding twice, and its own"},
};

std::string SnakeName(const char* function) {
  std::string name;
  for (const char* c = function; *c != '\0'; ++c) {
    if (absl::ascii_isupper(*c) && !name.empty()) name += '_';
    name += absl::ascii_tolower(*c);
  }
  return name;
}

HostTensor UnaryInput(const UnaryRow& row, const std::vector<int64_t>& dims) {
  return row.signed_inputs ? AwayFromZero(dims, row.low, row.high)
                           : Spread(dims, row.low, row.high);
}

void AddUnary(const UnaryRow& row, std::vector<OpEntry>& table) {
  OpEntry e{.name = row.function, .covers = {row.function}};
  e.value = row.value;
  e.gradient = row.gradient;
  e.why = row.why;
  for (const auto& dims : kShapes) {
    e.cases.push_back({.name = DimsName(dims),
                       .inputs = {UnaryInput(row, dims)},
                       .run = Call(row.op),
                       .host = Elementwise(row.f)});
  }
  const std::string name = SnakeName(row.function);
  e.errors = {{"integers",
               [op = row.op](Device& d) {
                 op(I32(d, {2, 3}));
               },
               {name, "i32 [2, 3]"}},
              {"undefined", [op = row.op](Device&) { op(Tensor()); }, {name, "undefined"}}};
  table.push_back(std::move(e));
}

// At the kink the derivative is that of the constant 0.
OpCase ReluAtZero() {
  const std::vector<int32_t> positive = {0, 0, 1};
  return {.name = "at zero",
          .inputs = {{{3}, {0, -0.0, 1}}},
          .run = Call(Relu),
          .oracle =
              [positive](const std::vector<Tensor>& x) {
                const Tensor condition = Constant(positive, {3}, x[0].device());
                return std::vector<Tensor>{Where(condition, x[0], Affine(x[0], 0))};
              },
          .smooth = false};
}

struct BinaryRow {
  const char* function;
  Tensor (*op)(const Tensor&, const Tensor&);
  double (*f)(double, double);
  Bound gradient;
  const char* why;
};

// Of some hundred terms of magnitudes up to 2, added in f32 in runs of up to 256.
const Bound kSumOfTerms = {.element = 1, .compute = 16, .floor = 2};
const char kOneRounding[] =
    "one rounding; the gradient of a broadcast operand is a sum, in f32 in runs of up to 256";
const BinaryRow kBinary[] = {
    {"Add", Add, [](double a, double b) { return a + b; }, kSumOfTerms, kOneRounding},
    {"Sub", Sub, [](double a, double b) { return a - b; }, kSumOfTerms, kOneRounding},
    {"Mul", Mul, [](double a, double b) { return a * b; }, kSumOfTerms, kOneRounding},
    {"Div",
     Div,
     [](double a, double b) { return a / b; },
     {.element = 1, .compute = 8, .floor = 8},
     "gradient of b: -dy a / b^2, up to 8, three roundings before the sum"},
};

struct ShapePair {
  std::vector<int64_t> a, b;
};
// Broadcasts in every position; rows of whole 16 bytes and others; sums (the gradients) along rows,
// across them, of everything, of few and of many terms.
const ShapePair kPairs[] = {
    {{1}, {1}},
    {{0}, {0}},
    {{13, 37}, {13, 37}},
    {{5, 7}, {7}},
    {{7}, {5, 7}},
    {{5, 1}, {1, 7}},
    {{2, 3, 5}, {3, 1}},
    {{4, 3, 5}, {}},
    {{3, 1}, {3, 0}},
    {{1}, {0}},
    {{2, 1, 3, 1}, {5, 1, 67}},
    {{4099}, {4099}},
    {{2053}, {1}},
    {{}, {1024}},
    {{3, 264}, {264}},
    {{3, 520}, {3, 1}},
    {{1, 16}, {72, 1}},
    {{149, 24}, {24}},
    {{4, 1, 8}, {4, 6, 8}},
    {{2, 8, 1, 8}, {8, 5, 1}},
    {{2, 1, 2, 1, 3, 1}, {1, 3, 1, 2, 1, 8}},
    {{2, 3, 2, 3, 2, 5}, {3, 1, 3, 1, 5}},
};

/// b away from 0, so that it can divide.
HostTensors BinaryInputs(const ShapePair& s) {
  return {Spread(s.a, -2, 2, 1), AwayFromZero(s.b, 0.5, 2, 2)};
}

std::vector<OpError> BinaryErrors(const std::string& name,
                                  Tensor (*op)(const Tensor&, const Tensor&), bool floating) {
  std::vector<OpError> errors = {
      {"shapes",
       [op](Device& d) {
         op(F32(d, {2, 3}), F32(d, {2, 4}));
       },
       {name, "[2, 3]", "[2, 4]"}},
      {"dtypes",
       [op](Device& d) {
         op(F32(d, {2, 3}), Bf16(d, {2, 3}));
       },
       {name, "f32 [2, 3]", "bf16 [2, 3]"}},
      {"undefined first", [op](Device& d) { op(Tensor(), F32(d, {2})); }, {name, "undefined"}},
      {"undefined second", [op](Device& d) { op(F32(d, {2}), Tensor()); }, {name, "undefined"}},
      {"too many dimensions",
       [op](Device& d) {
         op(F32(d, std::vector<int64_t>(9, 1)), F32(d, std::vector<int64_t>(9, 1)));
       },
       {name, "[1, 1, 1, 1, 1, 1, 1, 1, 1]"}},
  };
  if (floating) {
    errors.push_back(
        {"integers", [op](Device& d) { op(I32(d, {2}), I32(d, {2})); }, {name, "i32 [2]"}});
  }
  return errors;
}

void AddBinary(const BinaryRow& row, std::vector<OpEntry>& table) {
  OpEntry e{.name = row.function, .covers = {row.function}};
  e.value = {.element = 1};
  e.gradient = row.gradient;
  e.why = row.why;
  e.f32_gradients = {0, 1};
  for (const ShapePair& s : kPairs) {
    e.cases.push_back({.name = absl::StrCat(DimsName(s.a), " ", DimsName(s.b)),
                       .inputs = BinaryInputs(s),
                       .run = Call(row.op),
                       .host = HostBroadcast(row.f)});
  }
  e.cases.push_back(
      {.name = "the same tensor twice",
       .inputs = {AwayFromZero({3, 5}, 0.5, 2)},
       .run = [op = row.op](
                  const std::vector<Tensor>& x) { return std::vector<Tensor>{op(x[0], x[0])}; },
       .host =
           [f = row.f](const HostTensors& x) {
             return HostBroadcast(f)({x[0], x[0]});
           },
       .additions = 2});
  e.errors = BinaryErrors(SnakeName(row.function), row.op, true);
  table.push_back(std::move(e));
}

void AddAffine(std::vector<OpEntry>& table) {
  OpEntry e{.name = "Affine", .covers = {"Affine"}};
  e.value = {.element = 1, .compute = 2};
  e.gradient = {.element = 1, .compute = 1};
  e.why = "a product and a sum in f32, and one rounding";
  for (const auto& dims : kShapes) {
    e.cases.push_back({.name = DimsName(dims),
                       .inputs = {Spread(dims, -2, 2)},
                       .run =
                           [](const std::vector<Tensor>& x) {
                             return std::vector<Tensor>{Affine(x[0], -1.25, 0.375)};
                           },
                       .host = Elementwise([](double x) { return -1.25 * x + 0.375; })});
  }
  e.errors = {{"integers", [](Device& d) { Affine(I64(d, {3}), 1); }, {"affine", "i64 [3]"}},
              {"undefined", [](Device&) { Affine(Tensor(), 1); }, {"affine", "undefined"}}};
  table.push_back(std::move(e));
}

struct CompareRow {
  const char* function;
  Tensor (*op)(const Tensor&, const Tensor&);
  double (*f)(double, double);
};
const CompareRow kCompare[] = {
    {"Equal", Equal, [](double a, double b) -> double { return a == b; }},
    {"NotEqual", NotEqual, [](double a, double b) -> double { return a != b; }},
    {"Less", Less, [](double a, double b) -> double { return a < b; }},
    {"LessEqual", LessEqual, [](double a, double b) -> double { return a <= b; }},
    {"Greater", Greater, [](double a, double b) -> double { return a > b; }},
    {"GreaterEqual", GreaterEqual, [](double a, double b) -> double { return a >= b; }},
};

/// Small integers, often equal, and a NaN.
HostTensor Coarse(const std::vector<int64_t>& dims, int64_t seed) {
  HostTensor t = Spread(dims, -2, 2, seed);
  for (double& x : t.values) x = std::round(x);
  if (t.values.size() > 4) t.values[4] = std::nan("");
  return t;
}

void AddCompare(const CompareRow& row, std::vector<OpEntry>& table) {
  OpEntry e{.name = row.function, .covers = {row.function}};
  e.why = "exact";
  for (const ShapePair& s : kPairs) {
    e.cases.push_back({.name = absl::StrCat(DimsName(s.a), " ", DimsName(s.b)),
                       .inputs = {Coarse(s.a, 1), Coarse(s.b, 2)},
                       .run = Call(row.op),
                       .host = HostBroadcast(row.f),
                       .differentiable = false});
  }
  e.errors = BinaryErrors(SnakeName(row.function), row.op, false);
  table.push_back(std::move(e));
}

}  // namespace

void AddElementwiseOps(std::vector<OpEntry>& table) {
  for (const UnaryRow& row : kUnary) {
    AddUnary(row, table);
    if (row.op == Relu) table.back().cases.push_back(ReluAtZero());
  }
  for (const BinaryRow& row : kBinary) AddBinary(row, table);
  for (const CompareRow& row : kCompare) AddCompare(row, table);
  AddAffine(table);
}

}  // namespace pando
