#include "ops/cross_entropy.h"

#include <utility>

#include "ops/loss_parts.h"
#include "ops/op_support.h"

namespace pando {
namespace {

struct Sizes {
  int64_t rows;
  int64_t stride;
  int64_t vocab;
};

Sizes CheckShapes(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  CheckFloating("cross_entropy", logits);
  CheckIndices("cross_entropy", "targets", targets, DType::kI32, logits);
  Require(logits.rank() >= 1 && targets.numel() * logits.dim(-1) == logits.numel(),
          "cross_entropy: targets ", Describe(targets), " for logits ", Describe(logits));
  const int64_t stride = logits.dim(-1);
  const int64_t vocab = options.vocab == 0 ? stride : options.vocab;
  Require(vocab > 0 && vocab <= stride, "cross_entropy: a vocabulary of ", vocab, " in logits ",
          Describe(logits));
  return {targets.numel(), stride, vocab};
}

}  // namespace

Tensor CrossEntropy(const Tensor& logits, const Tensor& targets,
                    const CrossEntropyOptions& options) {
  const Sizes sizes = CheckShapes(logits, targets, options);
  Device& device = logits.device();
  Tensor losses = Tensor::Empty({sizes.rows}, StatsDType(logits), device, "losses");
  Tensor logsumexp = Tensor::Empty({sizes.rows}, StatsDType(logits), device, "logsumexp");
  LossesOf(logits, targets, sizes.vocab, options, losses, &logsumexp);
  Tensor loss = SumLosses(losses, targets, sizes.vocab, options);
  if (!Recording({&logits})) return loss;
  const auto backward = [logits = Saved(logits), targets = Saved(targets),
                         logsumexp = Saved(logsumexp), sizes, options](BackwardPass& pass) {
    const Tensor x = logits.Get(), ids = targets.Get(), lse = logsumexp.Get();
    Tensor dx = Tensor::Empty(x.shape(), x.dtype(), x.device(), "gradient of logits");
    const Tensor factor = AsFactor(pass.Gradient());
    Run(x.device(), cross_entropy_kernels.For(x.device()).backward,
        CrossEntropyBackwardArgs{.logits = x.data(),
                                 .targets = ids.data<int32_t>(),
                                 .logsumexp = lse.data(),
                                 .dlogits = dx.mutable_data(),
                                 .dtype = x.dtype(),
                                 .rows = sizes.rows,
                                 .vocab = sizes.vocab,
                                 .stride = sizes.stride,
                                 .ignore_index = options.ignore_index,
                                 .scale = options.scale,
                                 .factor = factor.data<float>()});
    pass.Add(0, std::move(dx));
  };
  Record("cross_entropy", {&logits}, {&loss}, backward);
  return loss;
}

Tensor CrossEntropyInPlace(Tensor logits, const Tensor& targets,
                           const CrossEntropyOptions& options) {
  if (!Recording({&logits})) return CrossEntropy(logits, targets, options);
  const Sizes sizes = CheckShapes(logits, targets, options);
  Require(logits.parameter() == nullptr,
          "cross_entropy: the logits are a parameter: not to be overwritten");
  Tensor losses = Tensor::Empty({sizes.rows}, StatsDType(logits), logits.device(), "losses");
  LossesAndGradient(logits, targets, sizes.vocab, options, losses);
  Tensor loss = SumLosses(losses, targets, sizes.vocab, options);
  Record("cross_entropy", {&logits}, {&loss}, [dx = Saved(logits)](BackwardPass& pass) {
    Tensor gradient = dx.Get();
    TimesLossGradient(pass, gradient);
    pass.Add(0, std::move(gradient));
  });
  return loss;
}

}  // namespace pando
