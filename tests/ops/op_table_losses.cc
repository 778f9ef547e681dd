// Cross-entropy, leaving its logits as they are and overwriting them.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/arithmetic.h"
#include "ops/cross_entropy.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "tests/ops/op_table.h"

namespace pando {
namespace {

using Dimensions = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;
using Loss = Tensor (*)(const Tensor&, const Tensor&, const CrossEntropyOptions&);

/// The logits that are overwritten must not be the leaf itself.
Tensor InPlaceOnCopy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options) {
  return CrossEntropyInPlace(Affine(logits, 1), targets, options);
}

struct LossCase {
  Dimensions logits;
  CrossEntropyOptions options;
  bool ignore_some = false;
};

std::vector<int32_t> Targets(int64_t rows, int64_t vocab, const LossCase& c) {
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r) {
    const bool ignored = c.ignore_some && r % 3 == 1;
    targets.push_back(ignored ? c.options.ignore_index
                              : static_cast<int32_t>((r * 7919 + 2) % vocab));
  }
  return targets;
}

/// scale x sum over rows that count of log(sum exp(x)) - x[target].
Tensor Oracle(const Tensor& logits, const std::vector<double>& one_hot,
              const std::vector<double>& counts, int64_t rows, int64_t vocab, double scale) {
  Device& device = logits.device();
  const Tensor x = Slice(logits.Reshape({rows, logits.dim(-1)}), 1, 0, vocab);
  const Tensor logsumexp = Log(Sum(Exp(x), {1}));
  const Tensor all = Sum(Mul(logsumexp, Constant(counts, {rows}, device)));
  const Tensor targets = Sum(Mul(x, Constant(one_hot, {rows, vocab}, device)));
  return Affine(Sub(all, targets), scale).Reshape({1});
}

OpCase MakeLossCase(const LossCase& c, Loss loss) {
  const int64_t stride = c.logits.back();
  const int64_t vocab = c.options.vocab == 0 ? stride : c.options.vocab;
  Dimensions rows_shape(c.logits.begin(), c.logits.end() - 1);
  const int64_t rows = CountOf(rows_shape);
  const std::vector<int32_t> targets = Targets(rows, vocab, c);
  std::vector<double> one_hot(rows * vocab, 0.0), counts;
  for (int64_t r = 0; r < rows; ++r) {
    const bool counted = targets[r] != c.options.ignore_index;
    counts.push_back(counted ? 1 : 0);
    if (counted) one_hot[r * vocab + targets[r]] = 1;
  }
  return {.name = absl::StrCat(DimsName(c.logits), " of ", vocab,
                               c.ignore_some ? " some ignored" : "", " scale ", c.options.scale),
          .inputs = {Spread(c.logits, -4, 4)},
          .run =
              [=](const Tensors& x) {
                const Tensor ids = Constant(targets, Shape(rows_shape), x[0].device());
                return Tensors{loss(x[0], ids, c.options)};
              },
          .oracle =
              [=](const Tensors& x) {
                return Tensors{Oracle(x[0], one_hot, counts, rows, vocab, c.options.scale)};
              }};
}

std::vector<OpError> LossErrors(Loss loss) {
  const auto call = [loss](auto logits, auto targets, CrossEntropyOptions options) {
    return [=](Device& d) {
      // Also the form that overwrites checks before it writes.
      Tensor x = logits(d);
      if (x.defined() && IsFloating(x.dtype())) x.RequireGrad();
      loss(x, targets(d), options);
    };
  };
  const auto f32 = [](Dimensions dims) { return [dims](Device& d) { return F32(d, dims); }; };
  const auto i32 = [](Dimensions dims) { return [dims](Device& d) { return I32(d, dims); }; };
  const auto undefined = [](Device&) { return Tensor(); };
  return {
      {"count", call(f32({2, 5}), i32({3}), {}), {"cross_entropy", "i32 [3]", "f32 [2, 5]"}},
      {"i64 targets",
       call(f32({2, 5}), [](Device& d) { return I64(d, {2}); }, {}),
       {"cross_entropy", "i64 [2]"}},
      {"vocabulary",
       call(f32({2, 5}), i32({2}), {.vocab = 6}),
       {"cross_entropy", "6", "f32 [2, 5]"}},
      {"negative vocabulary", call(f32({2, 5}), i32({2}), {.vocab = -1}), {"cross_entropy", "-1"}},
      {"no classes", call(f32({2, 0}), i32({2}), {}), {"cross_entropy", "f32 [2, 0]"}},
      {"scalar", call(f32({}), i32({}), {}), {"cross_entropy", "f32 []"}},
      {"integer logits", call(i32({2, 5}), i32({2}), {}), {"cross_entropy", "i32 [2, 5]"}},
      {"undefined targets", call(f32({2, 5}), undefined, {}), {"cross_entropy", "undefined"}},
  };
}

OpEntry LossEntry(const char* function, Loss loss) {
  OpEntry e{.name = function, .covers = {function}};
  // Rows are summed in f64; each has some f32 roundings at magnitudes up to 4 + log(67), of up to
  // 13 rows. The loss itself is f64, so its dtype adds nothing.
  e.value = {.compute = 2, .floor = 8};
  e.gradient = {.element = 1, .compute = 8, .floor = 1};
  e.why = "some f32 roundings per row, then f64; a gradient is rounded once";
  const LossCase cases[] = {
      {{1}, {}},
      {{3, 1}, {}},
      {{0, 5}, {}},
      {{2, 3, 7}, {.scale = 0.25}},
      {{13, 67}, {.scale = 0.125}, true},
      {{2, 1031}, {}},
      {{7, 41}, {.vocab = 37, .ignore_index = -100}, true},
      {{5, 11}, {.vocab = 11, .ignore_index = 3}, true},
  };
  for (const LossCase& c : cases) e.cases.push_back(MakeLossCase(c, loss));
  return e;
}

}  // namespace

void AddLosses(std::vector<OpEntry>& table) {
  table.push_back(LossEntry("CrossEntropy", CrossEntropy));
  table.back().errors = LossErrors(CrossEntropy);
  OpEntry in_place = LossEntry("CrossEntropyInPlace", InPlaceOnCopy);
  // The stored gradient is multiplied with the loss's, unless that is 1.
  in_place.gradient.element = 2;
  in_place.why = "as CrossEntropy; the gradient is rounded again when it is scaled";
  in_place.errors =
      LossErrors([](const Tensor& x, const Tensor& targets, const CrossEntropyOptions& options) {
        return CrossEntropyInPlace(x, targets, options);
      });
  table.push_back(std::move(in_place));
}

}  // namespace pando
