#include "dist/communicator/ring.h"

#include <algorithm>
#include <vector>

#include "dist/communicator/reduce_elements.h"

namespace pando {
namespace {

// A slice is cut so that hops overlap: n hops of k segments take (n + k - 1) / k of a slice's time.
// A segment is large enough that its own cost as a message doesn't show.
constexpr int64_t kSegmentsOfSlice = 12;
constexpr int64_t kLeastSegment = int64_t{16} << 10, kMostSegment = int64_t{512} << 10;
// Messages expected at once, so that the sender never waits for the receiver to get round to it.
constexpr size_t kWindow = 4;

struct Segment {
  int64_t offset;  // bytes
  int64_t bytes;
  bool forwarded;
};

/// The same on all ranks, and a multiple of every element's size.
int64_t SegmentBytes(TypedSpan data, absl::Span<const int64_t> counts, int ranks) {
  if (ranks == 2) return kMostSegment;  // nobody passes anything on
  const int64_t largest = *std::max_element(counts.begin(), counts.end()) * SizeOf(data.dtype());
  const int64_t ideal = largest / kSegmentsOfSlice / kLeastSegment * kLeastSegment;
  return std::clamp(ideal, kLeastSegment, kMostSegment);
}

/// The segments of `slices` slices, from slice `first` downwards; the last slice stays here if
/// `keep_last`.
std::vector<Segment> Segments(TypedSpan data, absl::Span<const int64_t> counts, int64_t segment,
                              int first, int slices, bool keep_last) {
  const int n = static_cast<int>(counts.size());
  const int64_t size = SizeOf(data.dtype());
  std::vector<int64_t> offsets(counts.size() + 1);
  for (size_t i = 0; i < counts.size(); ++i) offsets[i + 1] = offsets[i] + counts[i] * size;
  std::vector<Segment> segments;
  for (int k = 0; k < slices; ++k) {
    const auto slice = static_cast<size_t>((first - k + 2 * n) % n);
    for (int64_t at = offsets[slice]; at < offsets[slice + 1]; at += segment) {
      segments.push_back(
          {at, std::min(segment, offsets[slice + 1] - at), !(keep_last && k == slices - 1)});
    }
  }
  return segments;
}

char* At(TypedSpan data, int64_t offset) { return static_cast<char*>(data.data()) + offset; }

void SendAll(MessageBuffer& out, int to, const std::vector<Segment>& segments) {
  for (const Segment& s : segments) out.Send(to, s.offset, s.bytes);
}

void WaitSends(MessageBuffer& out, size_t count) {
  for (size_t i = 0; i < count; ++i) out.WaitSend();
}

size_t CountForwarded(const std::vector<Segment>& segments) {
  return static_cast<size_t>(std::count_if(segments.begin(), segments.end(),
                                           [](const Segment& s) { return s.forwarded; }));
}

/// Receives the segments into their places in `data` and passes them on.
void Relay(MessageBuffer& buffer, int from, int to, const std::vector<Segment>& segments) {
  for (const Segment& s : segments) buffer.Recv(from, s.offset, s.bytes);
  for (const Segment& s : segments) {
    buffer.WaitRecv();
    if (s.forwarded) buffer.Send(to, s.offset, s.bytes);
  }
}

}  // namespace

void RingReduceScatter(Messenger& messenger, TypedSpan data, absl::Span<const int64_t> counts,
                       ReduceOp op) {
  const int n = messenger.size(), rank = messenger.rank();
  if (n == 1) return;
  const int to = (rank + 1) % n, from = (rank + n - 1) % n;
  const int64_t segment = SegmentBytes(data, counts, n);
  // Slice s starts its way behind its owner, s + 1, gathers summands from rank to rank, and ends at
  // its owner. So this rank sends slices rank - 1, rank - 2, ..., rank + 1: the first as it is, the
  // others as they come.
  const std::vector<Segment> first = Segments(data, counts, segment, rank - 1, 1, false);
  const std::vector<Segment> incoming = Segments(data, counts, segment, rank - 2, n - 1, true);
  std::vector<char> arrived(std::min(kWindow, incoming.size()) * static_cast<size_t>(segment));
  const auto out = messenger.Open(data.data(), data.bytes());
  const auto in = messenger.Open(arrived.data(), static_cast<int64_t>(arrived.size()));
  const auto place = [segment](size_t i) { return static_cast<int64_t>(i % kWindow) * segment; };
  SendAll(*out, to, first);
  for (size_t i = 0; i < std::min(kWindow, incoming.size()); ++i) {
    in->Recv(from, place(i), incoming[i].bytes);
  }
  for (size_t i = 0; i < incoming.size(); ++i) {
    const Segment& s = incoming[i];
    in->WaitRecv();
    ReduceElements(data.dtype(), op, At(data, s.offset), arrived.data() + place(i),
                   s.bytes / SizeOf(data.dtype()));
    if (i + kWindow < incoming.size()) in->Recv(from, place(i), incoming[i + kWindow].bytes);
    if (s.forwarded) out->Send(to, s.offset, s.bytes);
  }
  WaitSends(*out, first.size() + CountForwarded(incoming));
}

void RingAllGather(Messenger& messenger, TypedSpan data, absl::Span<const int64_t> counts) {
  const int n = messenger.size(), rank = messenger.rank();
  if (n == 1) return;
  const int to = (rank + 1) % n, from = (rank + n - 1) % n;
  const int64_t segment = SegmentBytes(data, counts, n);
  // Each slice starts at its owner and goes round until the rank before it.
  const std::vector<Segment> first = Segments(data, counts, segment, rank, 1, false);
  const std::vector<Segment> incoming = Segments(data, counts, segment, rank - 1, n - 1, true);
  const auto buffer = messenger.Open(data.data(), data.bytes());
  SendAll(*buffer, to, first);
  Relay(*buffer, from, to, incoming);
  WaitSends(*buffer, first.size() + CountForwarded(incoming));
}

void ChainBroadcast(Messenger& messenger, TypedSpan data, int root) {
  const int n = messenger.size(), rank = messenger.rank();
  if (n == 1) return;
  const int to = (rank + 1) % n, from = (rank + n - 1) % n;
  const int64_t counts[] = {data.count()};
  const std::vector<Segment> segments =
      Segments(data, counts, SegmentBytes(data, counts, n), 0, 1, /*keep_last=*/to == root);
  const auto buffer = messenger.Open(data.data(), data.bytes());
  if (rank == root) {
    SendAll(*buffer, to, segments);
  } else {
    Relay(*buffer, from, to, segments);
  }
  WaitSends(*buffer, rank == root ? segments.size() : CountForwarded(segments));
}

std::vector<int64_t> EvenCounts(int64_t count, int ranks) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks), count / ranks);
  for (size_t i = 0; i < static_cast<size_t>(count % ranks); ++i) ++counts[i];
  return counts;
}

}  // namespace pando
