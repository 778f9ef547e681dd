#pragma once

#include <cstdint>
#include <span>

#include "train/sample_order.h"
#include "train/token_dataset.h"

namespace pando {

/// The target of a position that has none; cross-entropy ignores it.
inline constexpr int32_t kNoTarget = -1;

/// Fills `tokens` and `targets`, both int32 [n, T] with T = order.context(), with the global
/// samples first .. first + n - 1; n follows from the size of `tokens`. targets[s, t] is the token
/// after tokens[s, t]. Where a window is short, tokens are 0 and targets kNoTarget. Returns the
/// number of targets that are not kNoTarget. Throws InvalidArgument as TokenDataset::Window does,
/// or if the sizes do not fit.
int64_t FillBatch(const TokenDataset& dataset, const SampleOrder& order, int64_t first,
                  std::span<int32_t> tokens, std::span<int32_t> targets);

}  // namespace pando
