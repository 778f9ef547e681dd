#include "train/batch.h"

#include <algorithm>
#include <vector>

#include "engine/error.h"

namespace pando {

int64_t FillBatch(const TokenDataset& dataset, const SampleOrder& order, int64_t first,
                  std::span<int32_t> tokens, std::span<int32_t> targets) {
  const int64_t context = order.context();
  const auto size = static_cast<int64_t>(tokens.size());
  Require(size % context == 0 && targets.size() == tokens.size(), "FillBatch: ", size,
          " tokens and ", targets.size(), " targets are not [n, ", context, "]");
  std::fill(tokens.begin(), tokens.end(), 0);
  std::fill(targets.begin(), targets.end(), kNoTarget);
  std::vector<int32_t> window(context + 1);
  int64_t count = 0;
  for (int64_t row = 0; row * context < size; ++row) {
    const SampleWindow sample = order.At(first + row);
    if (sample.targets == 0) continue;
    dataset.Window(sample.start, std::span(window).first(sample.targets + 1));
    std::copy_n(window.begin(), sample.targets, tokens.begin() + row * context);
    std::copy_n(window.begin() + 1, sample.targets, targets.begin() + row * context);
    count += sample.targets;
  }
  return count;
}

}  // namespace pando
