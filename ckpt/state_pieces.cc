#include "ckpt/state_pieces.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pando {
namespace {

absl::Status Uncovered(const std::string& state, int64_t begin, int64_t end, const char* problem) {
  return absl::FailedPreconditionError(
      absl::StrCat("state \"", state, "\": elements ", begin, " to ", end, " ", problem));
}

}  // namespace

std::string StateTensorName(absl::string_view state, int64_t begin, int64_t end) {
  return absl::StrCat(state, ".", begin, "-", end);
}

TensorDecl StateTensorDecl(absl::string_view state, int64_t begin, int64_t end) {
  return {StateTensorName(state, begin, end), DType::kF32, {end - begin}};
}

std::optional<StatePiece> ParseStateTensorName(absl::string_view name) {
  const size_t dot = name.rfind('.');
  const size_t dash = name.rfind('-');
  if (dot == absl::string_view::npos || dash == absl::string_view::npos || dash < dot) return {};
  StatePiece piece;
  piece.state = std::string(name.substr(0, dot));
  if (!absl::SimpleAtoi(name.substr(dot + 1, dash - dot - 1), &piece.begin)) return {};
  if (!absl::SimpleAtoi(name.substr(dash + 1), &piece.end)) return {};
  // One spelling only: no signs, spaces or leading zeros.
  if (piece.begin < 0 || piece.end < piece.begin || piece.state.empty() ||
      StateTensorName(piece.state, piece.begin, piece.end) != name) {
    return {};
  }
  return piece;
}

absl::Status StateIndex::Add(const std::string& tensor, DType dtype,
                             const std::vector<int64_t>& shape, size_t file) {
  const std::optional<StatePiece> piece = ParseStateTensorName(tensor);
  if (!piece || dtype != DType::kF32 || shape != std::vector<int64_t>{piece->end - piece->begin}) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor \"", tensor, "\" is no state: expected STATE.BEGIN-END of f32 [END - BEGIN]"));
  }
  const std::pair<int64_t, int64_t> key = {piece->begin, piece->end};
  if (!states_[piece->state].emplace(key, Place{*piece, file}).second) {
    return Uncovered(piece->state, piece->begin, piece->end, "occur twice");
  }
  return absl::OkStatus();
}

absl::Status StateIndex::CheckCovers(int64_t flat_size) const {
  for (const auto& [state, pieces] : states_) {
    int64_t covered = 0;
    for (const auto& [key, place] : pieces) {
      const auto [begin, end] = key;
      if (begin > covered) return Uncovered(state, covered, begin, "are missing");
      if (begin < covered) return Uncovered(state, begin, std::min(covered, end), "occur twice");
      covered = end;
    }
    if (covered < flat_size) return Uncovered(state, covered, flat_size, "are missing");
    if (covered > flat_size) return Uncovered(state, flat_size, covered, "lie past the end");
  }
  return absl::OkStatus();
}

std::vector<std::string> StateIndex::States() const {
  std::vector<std::string> names;
  for (const auto& [state, pieces] : states_) names.push_back(state);
  return names;
}

absl::StatusOr<std::vector<StateIndex::Place>> StateIndex::Find(const std::string& state,
                                                                int64_t begin, int64_t end) const {
  const auto found = states_.find(state);
  if (found == states_.end()) {
    return absl::NotFoundError(absl::StrCat("no state \"", state, "\""));
  }
  std::vector<Place> places;
  for (const auto& [key, place] : found->second) {
    if (place.piece.begin < end && place.piece.end > begin) places.push_back(place);
  }
  return places;
}

}  // namespace pando
