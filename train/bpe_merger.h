#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "train/bpe_description.h"

namespace pando {

/// Builds the tokens of one piece of text from its bytes: of all neighbours that some merge joins,
/// the pair of lowest rank, the leftmost of these, is joined first, until none is left (Sennrich et
/// al., "Neural machine translation of rare words with subword units", 2016). O(n log n) in the
/// length of the piece. Immutable.
class BpeMerger {
 public:
  /// Working memory, reused from piece to piece; one per thread.
  class Scratch {
    friend class BpeMerger;
    struct Symbol {
      int32_t id;
      int32_t previous, next;  // positions, -1 at the ends; id is -1 once joined to the left
    };
    std::vector<Symbol> symbols_;
    std::vector<uint64_t> heap_;  // rank << 32 | position of the left symbol
  };

  /// Longest piece that Encode takes: positions are 32 bits wide.
  static constexpr size_t kMaxPiece = INT32_MAX;

  explicit BpeMerger(const BpeDescription& description);

  /// Appends the ids of `piece`, of at most kMaxPiece bytes, to `ids`.
  void Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const;

 private:
  void Consider(int32_t position, Scratch* scratch) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<BpeDescription::Merge> merges_;             // by rank
  absl::flat_hash_map<uint64_t, uint32_t> rank_of_pair_;  // key: left << 32 | right
};

}  // namespace pando
