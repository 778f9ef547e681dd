#pragma once

// What ranks say to each other while they train. Collectives are asynchronous, and called by all
// ranks in the same order with the same counts. They are ordered with the device's work as PyTorch
// orders NCCL's: a collective starts after what the calling thread's current stream was given
// before, and Work::Wait orders what that stream is given later behind the collective.

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "dist/communicator/typed_span.h"
#include "engine/device.h"

namespace pando {

enum class ReduceOp { kSum, kMax };

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kSend,
  kReceive,
  kBarrier
};
inline constexpr int kCollectiveKinds = 7;

/// "all-reduce".
const char* Name(CollectiveKind kind);

/// A collective in flight.
class Work {
 public:
  /// Waits, if nobody has, until the buffers are no longer touched; swallows errors.
  virtual ~Work() = default;
  /// Work that the buffers' device's current stream is given from here on comes after the
  /// collective; for host memory it is done when this returns. Throws PeerLost.
  virtual void Wait() = 0;
};

/// What has been sent so far, per kind. Only payloads count, not headers or acknowledgements.
struct CommunicatorStats {
  struct Entry {
    int64_t calls = 0;
    int64_t bytes_sent = 0;  ///< by this rank
    double seconds = 0;      ///< from the start of a collective to its end
  };
  std::array<Entry, kCollectiveKinds> by_kind;
  const Entry& operator[](CollectiveKind kind) const { return by_kind[static_cast<size_t>(kind)]; }
};

/// A group of ranks. Made anew for each generation: after a failure it is thrown away. Collectives
/// are started by one thread at a time; Abort and the statistics are for any thread.
///
/// Every method throws PeerLost once a peer is lost (at once where it died, at the timeout where it
/// does not answer) or Abort was called, and InvalidArgument for counts that don't fit. Elements
/// are f32, f64, bf16, f16, i32 or i64. Results do not depend on timing: sums are made in a fixed
/// order.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Where spans lie.
  virtual Device& device() const = 0;

  /// In place: the sum (or maximum) over ranks, the same bits on every rank.
  virtual std::unique_ptr<Work> AllReduce(TypedSpan data, ReduceOp op = ReduceOp::kSum) = 0;
  /// `data` is cut into one slice per rank, rank r's of counts[r] elements (0 allowed), in the
  /// order of ranks. Before: each rank has filled its own slice. After: all are filled.
  virtual std::unique_ptr<Work> AllGatherV(TypedSpan data, absl::Span<const int64_t> counts) = 0;
  /// `data` is cut in the same way. Before: each rank has summands for all. After: its own slice
  /// holds the sum over ranks, the others mean nothing.
  virtual std::unique_ptr<Work> ReduceScatterV(TypedSpan data,
                                               absl::Span<const int64_t> counts) = 0;
  /// Afterwards all have what `root` had.
  virtual std::unique_ptr<Work> Broadcast(TypedSpan data, int root) = 0;
  virtual std::unique_ptr<Work> Send(TypedSpan data, int to) = 0;
  virtual std::unique_ptr<Work> Recv(TypedSpan data, int from) = 0;
  /// Returns once all ranks have called it and all collectives before it are done. To be called
  /// before leaving: a rank that goes right after a collective breaks its peers.
  virtual void Barrier() = 0;

  /// Ends everything in flight and to come with PeerLost, here and, as connections break, in every
  /// peer. `reason` is part of the message. Never blocks.
  virtual void Abort(const std::string& reason) = 0;

  virtual CommunicatorStats stats() const = 0;
};

}  // namespace pando
