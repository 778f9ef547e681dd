#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "dist/zero/zero.h"

namespace pando {

/// The f32 state of training, by element of the flat space.
enum class FlatState { kMaster, kExpAvg, kExpAvgSq };

/// Rank 0 reads and writes the state of all ranks, piece by piece, for files that it alone sees.
/// Every rank makes one; rank 0 calls Read and Write as it likes and then Finish, the others Serve.
/// Throws PeerLost.
class FlatAccess {
 public:
  explicit FlatAccess(Zero& zero) : zero_(zero) {}

  /// Elements from `begin` on. A piece must fit the device's memory.
  void Read(FlatState state, int64_t begin, std::span<float> out);
  /// Everywhere they are held. Masters take effect with Zero::ValuesFromMasters.
  void Write(FlatState state, int64_t begin, std::span<const float> values);
  /// Ends the others' Serve; all ranks return `status`, whichever they call.
  absl::Status Finish(const absl::Status& status);
  absl::Status Serve();

 private:
  enum Op : int64_t { kRead, kWrite, kFinish };
  struct Request {
    int64_t op, state, begin, count;
  };

  Tensor StateOf(FlatState state);
  FlatInterval HeldBy(int rank) const;
  /// What of the request's elements this rank holds, and where in its state.
  Tensor Held(const Request& request);
  void Announce(Request& request);
  void Answer(const Request& request);

  Zero& zero_;
};

}  // namespace pando
