#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/error.h"
#include "engine/random.h"
#include "engine/tape.h"
#include "ops/shape_ops.h"

namespace pando {
namespace {

/// Token ids by falling logit; equal logits by rising id, so that the order is always the same.
std::vector<int32_t> Ranking(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  return ids;
}

/// How many of the ranked tokens stay: the fewest that reach probability top_p, at most top_k.
size_t Kept(const std::vector<double>& weights, const SamplingOptions& options) {
  size_t kept = weights.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<size_t>(options.top_k));
  const double total =
      std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    sum += weights[i];
    if (sum >= options.top_p * total) return i + 1;
  }
  return kept;
}

}  // namespace

void CheckSampling(const SamplingOptions& options) {
  Require(options.temperature >= 0, "temperature ", options.temperature, " is negative");
  Require(options.top_k >= 0, "top-k ", options.top_k, " is negative");
  Require(options.top_p > 0 && options.top_p <= 1, "top-p ", options.top_p, " is not in (0, 1]");
}

int32_t SampleToken(std::vector<float> logits, const SamplingOptions& options, int64_t position) {
  const std::vector<int32_t> ids = Ranking(logits);
  if (options.temperature == 0) return ids[0];
  std::vector<double> weights(ids.size());
  const double largest = logits[ids[0]];
  for (size_t i = 0; i < ids.size(); ++i) {
    weights[i] = std::exp((logits[ids[i]] - largest) / options.temperature);
  }
  const size_t kept = Kept(weights, options);
  const double total =
      std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
  const RandomKey key{.seed = options.seed, .site = HashName("sample"), .step = 0};
  const double draw = RandomBits(key, 0, static_cast<uint64_t>(position)) * 0x1p-32 * total;
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    sum += weights[i];
    if (draw < sum) return ids[i];
  }
  return ids[kept - 1];
}

void Generate(LanguageModel& model, Device& device, const std::vector<int32_t>& prompt,
              int64_t count, const SamplingOptions& options,
              const std::function<void(int32_t)>& emit) {
  CheckSampling(options);
  Require(!prompt.empty(), "sampling needs at least one token to start from");
  const NoGrad no_grad;
  const int64_t context = model.context();
  std::vector<int32_t> text = prompt;
  // `fresh` tokens of the text are not in the cache yet.
  const auto restart = [&](int64_t keep) {
    return std::min<int64_t>(keep, static_cast<int64_t>(text.size()));
  };
  KvCache cache = model.NewCache(1, context);
  int64_t fresh = restart(context);
  for (int64_t i = 0; i < count; ++i) {
    if (cache.length + fresh > context) {
      cache = model.NewCache(1, context);
      fresh = restart(std::max<int64_t>(1, context / 2));
    }
    const std::vector<int32_t> tokens(text.end() - fresh, text.end());
    const Tensor logits =
        Cast(model.NextLogits(Tensor::FromHost(tokens, {1, fresh}, device), cache), DType::kF32);
    std::vector<float> row = logits.ToHost<float>();
    device.CheckErrorFlag();
    row.resize(static_cast<size_t>(model.vocab_size()));
    text.push_back(SampleToken(std::move(row), options, i));
    fresh = 1;
    emit(text.back());
  }
}

}  // namespace pando
