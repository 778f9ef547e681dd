// Cross-entropy, leaving its logits as they are and overwriting them.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/arithmetic.h"
#include "ops/cross_entropy.h"
#include "ops/linear_cross_entropy.h"
#include "ops/matmul.h"
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

/// Targets of `rows` rows, and what the oracle needs of them.
struct LossTargets {
  LossTargets(int64_t rows, int64_t vocab, const CrossEntropyOptions& options, bool ignore_some)
      : one_hot(static_cast<size_t>(rows * vocab), 0.0) {
    for (int64_t r = 0; r < rows; ++r) {
      const bool ignored = ignore_some && r % 3 == 1;
      const auto target = static_cast<int32_t>((r * 7919 + 2) % vocab);
      ids.push_back(ignored ? options.ignore_index : target);
      const bool counted = ids.back() != options.ignore_index;
      counts.push_back(counted ? 1 : 0);
      if (counted) one_hot[static_cast<size_t>(r * vocab + target)] = 1;
    }
  }
  std::vector<int32_t> ids;
  std::vector<double> one_hot, counts;
};

/// scale x sum over rows that count of log(sum exp(x)) - x[target].
Tensor Oracle(const Tensor& logits, const LossTargets& targets, int64_t vocab, double scale) {
  Device& device = logits.device();
  const auto rows = static_cast<int64_t>(targets.ids.size());
  const Tensor x = Slice(logits.Reshape({rows, logits.dim(-1)}), 1, 0, vocab);
  const Tensor logsumexp = Log(Sum(Exp(x), {1}));
  const Tensor all = Sum(Mul(logsumexp, Constant(targets.counts, {rows}, device)));
  const Tensor of_targets = Sum(Mul(x, Constant(targets.one_hot, {rows, vocab}, device)));
  return Affine(Sub(all, of_targets), scale).Reshape({1});
}

OpCase MakeLossCase(const LossCase& c, Loss loss) {
  const int64_t stride = c.logits.back();
  const int64_t vocab = c.options.vocab == 0 ? stride : c.options.vocab;
  Dimensions rows_shape(c.logits.begin(), c.logits.end() - 1);
  const int64_t rows = CountOf(rows_shape);
  const LossTargets targets(rows, vocab, c.options, c.ignore_some);
  return {
      .name = absl::StrCat(DimsName(c.logits), " of ", vocab, c.ignore_some ? " some ignored" : "",
                           " scale ", c.options.scale),
      .inputs = {Spread(c.logits, -4, 4)},
      .run =
          [=](const Tensors& x) {
            const Tensor ids = Constant(targets.ids, Shape(rows_shape), x[0].device());
            return Tensors{loss(x[0], ids, c.options)};
          },
      .oracle =
          [=](const Tensors& x) { return Tensors{Oracle(x[0], targets, vocab, c.options.scale)}; }};
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
  const auto f32 = [](const Dimensions& dims) {
    return [dims](Device& d) { return F32(d, dims); };
  };
  const auto i32 = [](const Dimensions& dims) {
    return [dims](Device& d) { return I32(d, dims); };
  };
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
      // Rows of whole packs of 16 bytes or not, on one warp of a GPU or many, in one turn or more.
      {{3, 8}, {}},
      {{2, 16}, {.vocab = 13}},
      {{17, 64}, {.scale = 0.5}, true},
      {{5, 31}, {}},
      {{9, 24}, {.vocab = 17, .ignore_index = -1}, true},
      {{2, 768}, {.scale = 0.5}},
      {{3, 1032}, {.vocab = 1027}},
      {{1, 4096}, {.vocab = 4095}},
      {{2, 4104}, {.vocab = 4097, .scale = 0.5}},
      {{1, 8200}, {}},
      {{2, 4099}, {.vocab = 4098}},
      {{300, 16}, {.scale = 0.01}, true},
      {{1, 50304}, {.vocab = 50257}},
  };
  for (const LossCase& c : cases) e.cases.push_back(MakeLossCase(c, loss));
  return e;
}

struct HeadCase {
  Dimensions x;
  int64_t columns;
  LinearCrossEntropyOptions options;
  bool ignore_some = false;
};

OpCase MakeHeadCase(const HeadCase& c) {
  const int64_t vocab = c.options.loss.vocab == 0 ? c.columns : c.options.loss.vocab;
  Dimensions rows_shape(c.x.begin(), c.x.end() - 1);
  const int64_t rows = CountOf(rows_shape), in = c.x.back();
  const LossTargets targets(rows, vocab, c.options.loss, c.ignore_some);
  return {.name = absl::StrCat(DimsName(c.x), " to ", c.columns, " of ", vocab, " chunks of ",
                               c.options.chunk_rows, c.ignore_some ? " some ignored" : "",
                               " scale ", c.options.loss.scale),
          .inputs = {Spread(c.x, -1, 1, 1), Spread({c.columns, in}, -1, 1, 2)},
          .run =
              [=](const Tensors& x) {
                const Tensor ids = Constant(targets.ids, Shape(rows_shape), x[0].device());
                return Tensors{LinearCrossEntropy(x[0], x[1], ids, c.options)};
              },
          .oracle =
              [=](const Tensors& x) {
                const Tensor logits = Matmul(x[0].Reshape({rows, in}), x[1], {.transpose_b = true});
                return Tensors{Oracle(logits, targets, vocab, c.options.loss.scale)};
              }};
}

void AddLinearCrossEntropy(std::vector<OpEntry>& table) {
  OpEntry e{.name = "LinearCrossEntropy", .covers = {"LinearCrossEntropy", "LossChunkRows"}};
  // Logits of up to 4 are rounded to the dtype: half a unit of that in a row's loss, of either sign
  // in up to 40 rows.
  e.value = {.tensor = 2, .compute = 16, .floor = 4};
  // The gradient of a logit is below 1, has the relative error of e^logit, and is rounded, and
  // maybe rounded again when it is scaled; then come sums of up to 71.
  e.gradient = {.element = 2, .tensor = 2, .compute = 16, .floor = 2};
  e.why = "logits and their gradients are rounded to the dtype; sums are in f32";
  const HeadCase cases[] = {
      {{1}, 1, {}},
      {{3, 1}, 1, {}},
      {{0, 5}, 7, {}},
      {{3, 0}, 5, {}},
      {{3, 0}, 5, {.chunk_rows = 2}},
      {{2, 3, 7}, 5, {.loss = {.scale = 0.25}}},
      {{2, 3, 7}, 5, {.loss = {.scale = 0.25}, .chunk_rows = 1}},
      {{2, 3, 7}, 5, {.loss = {.scale = 0.25}, .chunk_rows = 4}},
      {{6, 7}, 13, {.chunk_rows = 6}},
      {{6, 7}, 13, {.chunk_rows = 3}},
      {{6, 7}, 13, {.chunk_rows = 100}},
      {{13, 11}, 67, {.loss = {.scale = 0.125}, .chunk_rows = 5}, true},
      {{13, 11}, 67, {.loss = {.scale = 0.125}}, true},
      {{7, 16}, 48, {.loss = {.vocab = 37, .ignore_index = -100}, .chunk_rows = 2}, true},
      {{7, 16}, 41, {.loss = {.vocab = 37, .ignore_index = -100}}, true},
      {{5, 8}, 11, {.loss = {.vocab = 11, .ignore_index = 3}, .chunk_rows = 4}, true},
      {{2, 5}, 71, {.chunk_rows = 1}},
      {{40, 8}, 64, {.chunk_rows = 16}},
      {{3, 13, 3}, 8, {.chunk_rows = 8}},
      {{1, 24}, 56, {}},
      {{9, 2}, 2, {.chunk_rows = 7}},
      {{4, 32}, 16, {.chunk_rows = 2}},
      {{31, 5}, 3, {.chunk_rows = 10}, true},
      {{17, 3}, 5, {.chunk_rows = 16}},
      {{12, 1}, 9, {.chunk_rows = 5}, true},
      {{1, 40}, 8, {}},
      {{2, 2, 2, 8}, 24, {.chunk_rows = 3}},
  };
  for (const HeadCase& c : cases) e.cases.push_back(MakeHeadCase(c));
  e.errors = {
      {"inputs",
       [](Device& d) {
         LinearCrossEntropy(F32(d, {2, 3}), F32(d, {5, 4}), I32(d, {2}));
       },
       {"linear_cross_entropy", "f32 [2, 3]", "f32 [5, 4]"}},
      {"count of targets",
       [](Device& d) {
         LinearCrossEntropy(F32(d, {2, 3}), F32(d, {5, 3}), I32(d, {3}), {.chunk_rows = 1});
       },
       {"linear_cross_entropy", "i32 [3]", "f32 [2, 3]"}},
      {"i64 targets",
       [](Device& d) {
         LinearCrossEntropy(F32(d, {2, 3}), F32(d, {5, 3}), I64(d, {2}));
       },
       {"linear_cross_entropy", "i64 [2]"}},
      {"vocabulary",
       [](Device& d) {
         LinearCrossEntropy(F32(d, {2, 3}), F32(d, {5, 3}), I32(d, {2}), {.loss = {.vocab = 6}});
       },
       {"linear_cross_entropy", "6", "f32 [5, 3]"}},
      {"chunks",
       [](Device& d) {
         LinearCrossEntropy(F32(d, {2, 3}), F32(d, {5, 3}), I32(d, {2}), {.chunk_rows = -1});
       },
       {"linear_cross_entropy", "-1"}},
      {"undefined weight",
       [](Device& d) {
         LinearCrossEntropy(F32(d, {2, 3}), Tensor(), I32(d, {2}));
       },
       {"linear_cross_entropy", "undefined"}},
  };
  table.push_back(std::move(e));
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
  AddLinearCrossEntropy(table);
}

}  // namespace pando
