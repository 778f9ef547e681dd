#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/error.h"
#include "engine/module.h"
#include "engine/step_context.h"
#include "engine/tape.h"
#include "engine/tensor.h"

namespace pando {

/// Keys and values of the tokens seen so far, for generation token by token. Made by a model.
struct KvCache {
  std::vector<Tensor> keys;    ///< per layer, [B, capacity, Hkv D]
  std::vector<Tensor> values;  ///< per layer, [B, capacity, Hkv D]
  int64_t capacity = 0;        ///< most tokens that fit
  int64_t length = 0;          ///< tokens seen
};

/// What a model must be to be trained by train/trainer.h and sampled from: the seam between models
/// and everything that runs them.
class LanguageModel : public Module {
 public:
  using Module::Module;

  /// Tokens that the model distinguishes; ids lie in [0, vocab_size).
  virtual int64_t vocab_size() const = 0;
  /// Longest sequence.
  virtual int64_t context() const = 0;

  /// The sum over all targets of the negative log-likelihood, times `scale`: f32 [1] (f64 for f64
  /// parameters). tokens and targets are i32 [B, T], T <= context(); targets of -1 don't count.
  virtual Tensor Loss(const Tensor& tokens, const Tensor& targets, const StepContext& step,
                      double scale) = 0;

  // The rest has defaults, so that a first model needs no more than the above.

  /// Logits of the last position, [B, vocab_size or more] (columns beyond vocab_size mean nothing),
  /// after taking `tokens`, i32 [B, T], into the cache. Throws InvalidArgument if they don't fit,
  /// or if the model can't generate.
  virtual Tensor NextLogits(const Tensor& /*tokens*/, KvCache& /*cache*/) {
    throw InvalidArgument("this model does not generate: it has no NextLogits");
  }
  /// An empty cache for `batch` sequences of up to `capacity` tokens, of the parameters' dtype.
  virtual KvCache NewCache(int64_t /*batch*/, int64_t capacity) { return {{}, {}, capacity, 0}; }

  /// The segments of the model, in the order of forward; together they hold every parameter. None:
  /// the model is one segment.
  virtual std::vector<Unit*> units() { return {}; }
  /// Recompute the forward of segments in backward instead of keeping their activations.
  virtual void SetRecompute(bool on) {
    for (Unit* unit : units()) unit->recompute = on;
  }

  /// Floating-point operations of forward and backward per token at sequence length T, and the
  /// formula in words.
  virtual double FlopsPerToken(int64_t /*length*/) const {
    return 6.0 * static_cast<double>(scope().registry().numel());
  }
  virtual std::string FlopsFormula() const { return "6 per parameter and token"; }
  /// Estimate of the most bytes that activations and their gradients take at once, for a
  /// micro-batch of `batch` sequences, if computing in elements of `element_bytes` bytes; 0:
  /// unknown.
  virtual int64_t ActivationBytes(int64_t /*batch*/, int64_t /*length*/,
                                  int64_t /*element_bytes*/) const {
    return 0;
  }
};

}  // namespace pando
