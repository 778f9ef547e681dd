#pragma once

// Collectives in host memory as rings of messages. Slices may have any sizes: they are cut into
// segments, and a rank passes a segment on as soon as it has it, so that a large slice takes its
// time once and not once per hop.

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "dist/communicator/communicator.h"

namespace pando {

/// Host memory that messages are sent from and received into. Messages between two ranks arrive in
/// the order in which they were sent. All methods throw if the peer is lost.
class MessageBuffer {
 public:
  /// Messages on their way may no longer arrive.
  virtual ~MessageBuffer() = default;
  /// Queues a message of these bytes of the buffer, which must stay as they are until it is sent.
  virtual void Send(int to, int64_t offset, int64_t bytes) = 0;
  /// Expects a message of so many bytes. Several may be expected at once.
  virtual void Recv(int from, int64_t offset, int64_t bytes) = 0;
  /// Waits for one more message to be sent; for the next one expected to be there.
  virtual void WaitSend() = 0;
  virtual void WaitRecv() = 0;
};

/// Carries messages between the ranks of a group.
class Messenger {
 public:
  virtual ~Messenger() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::unique_ptr<MessageBuffer> Open(void* data, int64_t bytes) = 0;
};

/// As Communicator::ReduceScatterV. Sends every slice but the own one.
void RingReduceScatter(Messenger& messenger, TypedSpan data, absl::Span<const int64_t> counts,
                       ReduceOp op);
/// As Communicator::AllGatherV. Sends every slice but the next rank's.
void RingAllGather(Messenger& messenger, TypedSpan data, absl::Span<const int64_t> counts);
/// As Communicator::Broadcast: every rank but the last behind the root sends the whole.
void ChainBroadcast(Messenger& messenger, TypedSpan data, int root);

/// The slices of an all-reduce, which is a reduce-scatter and an all-gather: as even as can be.
std::vector<int64_t> EvenCounts(int64_t count, int ranks);

}  // namespace pando
