#include "ops/linear_cross_entropy.h"

#include <algorithm>
#include <utility>

#include "ops/linear.h"
#include "ops/linear_parts.h"
#include "ops/loss_parts.h"
#include "ops/op_support.h"

namespace pando {
namespace {

// Large enough that products over a chunk run at full speed: thousands of rows.
constexpr int64_t kMostLogitsBytes = int64_t{512} << 20;
// Sizes of chunks are multiples of what tiles of products cover.
constexpr int64_t kRowMultiple = 128;

constexpr char kOp[] = "linear_cross_entropy";

struct Gradients {
  Tensor dx;       ///< [rows, C]; undefined if not wanted
  Tensor dweight;  ///< [V, C], f32 (f64 for f64); likewise
};

/// Losses [rows], and the gradients that `wanted` has room for, chunk by chunk.
Tensor InChunks(const Tensor& x, const Tensor& weight, const Tensor& targets,
                const LinearSizes& all, int64_t vocab, int64_t chunk_rows,
                const CrossEntropyOptions& options, Gradients& wanted) {
  Tensor buffer = Tensor::Empty({chunk_rows, all.out}, x.dtype(), x.device(), "logits of a chunk");
  Tensor losses = Tensor::Empty({all.rows}, StatsDType(x), x.device(), "losses");
  const bool with_gradient = wanted.dx.defined() || wanted.dweight.defined();
  for (int64_t first = 0; first < all.rows; first += chunk_rows) {
    LinearSizes s = all;
    s.rows = std::min(chunk_rows, all.rows - first);
    const Tensor rows = x.Narrow(first, s.rows);
    Tensor logits = buffer.Narrow(0, s.rows);
    RunGemm(s.Forward(), rows, weight, logits);
    const Tensor chunk_targets = targets.Narrow(first, s.rows);
    Tensor chunk_losses = losses.Narrow(first, s.rows);
    if (with_gradient) {
      LossesAndGradient(logits, chunk_targets, vocab, options, chunk_losses);
    } else {
      LossesOf(logits, chunk_targets, vocab, options, chunk_losses, nullptr);
    }
    if (wanted.dx.defined()) {
      Tensor dx = wanted.dx.Narrow(first, s.rows);
      RunGemm(s.Backward(), logits, weight, dx);
    }
    if (wanted.dweight.defined()) {
      RunGemm({.transpose_a = true, .accumulate = first > 0, .m = s.out, .n = s.in, .k = s.rows},
              logits, rows, wanted.dweight);
    }
  }
  return losses;
}

}  // namespace

int64_t LossChunkRows(int64_t rows, int64_t columns, int64_t element_bytes) {
  // In floating point: nobody may have checked yet that these sizes make sense.
  const double bytes =
      static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(element_bytes);
  const auto most = static_cast<double>(kMostLogitsBytes);
  if (bytes <= most) return rows;
  const auto chunks = static_cast<int64_t>(std::min(bytes / most, 0x1p40)) + 1;
  const int64_t even = (rows + chunks - 1) / chunks;
  return std::min(rows, (even + kRowMultiple - 1) / kRowMultiple * kRowMultiple);
}

Tensor LinearCrossEntropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                          const LinearCrossEntropyOptions& options) {
  const LinearSizes s = CheckLinear(kOp, x, weight, Tensor(), WeightLayout::kOutIn);
  CheckIndices(kOp, "targets", targets, DType::kI32, x);
  Require(targets.numel() == s.rows, kOp, ": targets ", Describe(targets), " for x ", Describe(x));
  const int64_t vocab = options.loss.vocab == 0 ? s.out : options.loss.vocab;
  Require(vocab > 0 && vocab <= s.out, kOp, ": a vocabulary of ", vocab, " for a weight ",
          Describe(weight));
  Require(options.chunk_rows >= 0, kOp, ": chunks of ", options.chunk_rows, " rows");
  const int64_t chunk_rows =
      options.chunk_rows > 0 ? options.chunk_rows : LossChunkRows(s.rows, s.out, SizeOf(x.dtype()));
  if (chunk_rows >= s.rows) {
    return CrossEntropyInPlace(Linear(x, weight, Tensor(), WeightLayout::kOutIn), targets,
                               options.loss);
  }
  Gradients gradients;
  if (Recording({&x})) {
    gradients.dx = Tensor::Empty({s.rows, s.in}, x.dtype(), x.device(), "gradient of the head");
  }
  if (Recording({&weight})) {
    gradients.dweight =
        Tensor::Empty(weight.shape(), StatsDType(x), x.device(), "gradient of the head's weight");
  }
  const Tensor losses =
      InChunks(x.Detach().Reshape({s.rows, s.in}), weight, targets.Detach().Reshape({s.rows}), s,
               vocab, chunk_rows, options.loss, gradients);
  Tensor loss = SumLosses(losses, targets, vocab, options.loss);
  if (!Recording({&x, &weight})) return loss;
  Record(kOp, {&x, &weight}, {&loss},
         [dx = Saved(gradients.dx), dweight = Saved(gradients.dweight)](BackwardPass& pass) {
           const Saved* const saved[] = {&dx, &dweight};
           for (int input = 0; input < 2; ++input) {
             if (!saved[input]->defined()) continue;
             Tensor gradient = saved[input]->Get();
             TimesLossGradient(pass, gradient);
             pass.Add(input, std::move(gradient));
           }
         });
  return loss;
}

}  // namespace pando
