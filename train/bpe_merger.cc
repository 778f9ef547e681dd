#include "train/bpe_merger.h"

#include <algorithm>
#include <functional>
#include <string>

#include "train/utf8.h"

namespace pando {
namespace {

uint64_t Pair(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BpeMerger::BpeMerger(const BpeDescription& description) : merges_(description.merges) {
  byte_ids_.fill(0);
  absl::flat_hash_map<std::string, int32_t> ids;
  for (size_t id = 0; id < description.tokens.size(); ++id) {
    ids.emplace(description.tokens[id], static_cast<int32_t>(id));
  }
  for (int b = 0; b < 256; ++b) {
    std::string c;
    AppendUtf8(ByteAlphabet(static_cast<uint8_t>(b)), &c);
    byte_ids_[b] = ids.at(c);
  }
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    // The last of equal merges counts, as in Hugging Face's table.
    rank_of_pair_[Pair(merges_[rank].left, merges_[rank].right)] = static_cast<uint32_t>(rank);
  }
}

void BpeMerger::Consider(int32_t position, Scratch* scratch) const {
  const Scratch::Symbol& left = scratch->symbols_[position];
  if (left.next < 0) return;
  const auto found = rank_of_pair_.find(Pair(left.id, scratch->symbols_[left.next].id));
  if (found == rank_of_pair_.end()) return;
  scratch->heap_.push_back(static_cast<uint64_t>(found->second) << 32 |
                           static_cast<uint32_t>(position));
}

void BpeMerger::Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
  auto& symbols = scratch->symbols_;
  auto& heap = scratch->heap_;
  const auto size = static_cast<int32_t>(piece.size());
  symbols.resize(size);
  heap.clear();
  for (int32_t i = 0; i < size; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(piece[i])], i - 1, i + 1 < size ? i + 1 : -1};
  }
  for (int32_t i = 0; i < size; ++i) Consider(i, scratch);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto position = static_cast<int32_t>(top & 0xFFFFFFFFu);
    const BpeDescription::Merge& merge = merges_[top >> 32];
    Scratch::Symbol& left = symbols[position];
    // Entries are not taken out when a neighbour changes: what no longer fits is stale.
    if (left.id != merge.left || left.next < 0 || symbols[left.next].id != merge.right) continue;
    Scratch::Symbol& right = symbols[left.next];
    left.id = merge.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = position;
    for (const int32_t p : {position, left.previous}) {
      const size_t before = heap.size();
      if (p >= 0) Consider(p, scratch);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  for (int32_t i = size == 0 ? -1 : 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace pando
