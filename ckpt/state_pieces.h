#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/safetensors_header.h"

// Optimizer state is stored by interval of the flat parameter space, never by rank, so that any
// later plan can be filled from it: a tensor `STATE.BEGIN-END` of f32 [END - BEGIN] holds the
// elements BEGIN to END - 1 of that state.

namespace pando {

/// The usual states.
inline constexpr char kMasterState[] = "master";
inline constexpr char kExpAvgState[] = "exp_avg";
inline constexpr char kExpAvgSqState[] = "exp_avg_sq";

/// A tensor that holds one interval of one state.
struct StatePiece {
  std::string state;
  int64_t begin = 0;
  int64_t end = 0;  ///< one past the last
};

/// "master.0-4096".
std::string StateTensorName(absl::string_view state, int64_t begin, int64_t end);

/// The declaration of a piece for a safetensors file.
TensorDecl StateTensorDecl(absl::string_view state, int64_t begin, int64_t end);

/// None if `name` is no such name.
std::optional<StatePiece> ParseStateTensorName(absl::string_view name);

/// Which file holds which interval.
class StateIndex {
 public:
  struct Place {
    StatePiece piece;
    size_t file = 0;  ///< a number that the user of this class gives each file
  };

  /// InvalidArgument unless name, dtype and shape are those of a piece.
  absl::Status Add(const std::string& tensor, DType dtype, const std::vector<int64_t>& shape,
                   size_t file);

  /// FailedPrecondition, naming the interval, unless each state's pieces cover 0 to flat_size - 1
  /// once. A checkpoint with a hole is no checkpoint.
  absl::Status CheckCovers(int64_t flat_size) const;

  std::vector<std::string> States() const;

  /// The pieces that share elements with [begin, end), in order; NotFound if `state` has none.
  absl::StatusOr<std::vector<Place>> Find(const std::string& state, int64_t begin,
                                          int64_t end) const;

 private:
  // By state and then by (begin, end): an empty piece comes before the one that starts there.
  std::map<std::string, std::map<std::pair<int64_t, int64_t>, Place>> states_;
};

}  // namespace pando
