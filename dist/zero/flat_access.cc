#include "dist/zero/flat_access.h"

#include "dist/communicator/broadcast_text.h"

namespace pando {
namespace {

Tensor OnDevice(std::span<const float> values, Device& device) {
  return Tensor::FromHost(values, {static_cast<int64_t>(values.size())}, device,
                          "a piece of state");
}

}  // namespace

Tensor FlatAccess::StateOf(FlatState state) {
  if (state == FlatState::kExpAvg) return zero_.optimizer().exp_avg();
  if (state == FlatState::kExpAvgSq) return zero_.optimizer().exp_avg_sq();
  return zero_.masters();
}

FlatInterval FlatAccess::HeldBy(int rank) const {
  return zero_.stage() == 0 ? FlatInterval{0, zero_.layout().size()} : zero_.shards().Of(rank);
}

Tensor FlatAccess::Held(const Request& request) {
  const FlatInterval part =
      Intersection(zero_.own(), {request.begin, request.begin + request.count});
  return StateOf(static_cast<FlatState>(request.state))
      .Narrow(part.begin - zero_.own().begin, part.size());
}

/// Rank 0 tells what it wants next, the others hear it.
void FlatAccess::Announce(Request& request) {
  if (zero_.ranks() == 1) return;
  int64_t numbers[] = {request.op, request.state, request.begin, request.count};
  Tensor there =
      Tensor::FromHost(std::span<const int64_t>(numbers), {4}, zero_.device(), "a request");
  zero_.communicator()->Broadcast(TypedSpan(there), 0)->Wait();
  there.ToHost(std::span<int64_t>(numbers));
  request = {numbers[0], numbers[1], numbers[2], numbers[3]};
}

void FlatAccess::Read(FlatState state, int64_t begin, std::span<float> out) {
  Request request{kRead, static_cast<int64_t>(state), begin, static_cast<int64_t>(out.size())};
  Announce(request);
  const int holders = zero_.stage() == 0 ? 1 : zero_.ranks();
  for (int r = 0; r < holders; ++r) {
    const FlatInterval part = Intersection(HeldBy(r), {begin, begin + request.count});
    if (part.size() == 0) continue;
    const auto place =
        out.subspan(static_cast<size_t>(part.begin - begin), static_cast<size_t>(part.size()));
    if (r == 0) {
      Held(request).ToHost(place);
      continue;
    }
    Tensor piece = Tensor::Empty({part.size()}, DType::kF32, zero_.device(), "a piece of state");
    zero_.communicator()->Recv(TypedSpan(piece), r)->Wait();
    piece.ToHost(place);
  }
}

void FlatAccess::Write(FlatState state, int64_t begin, std::span<const float> values) {
  Request request{kWrite, static_cast<int64_t>(state), begin, static_cast<int64_t>(values.size())};
  Announce(request);
  for (int r = 0; r < zero_.ranks(); ++r) {
    const FlatInterval part = Intersection(HeldBy(r), {begin, begin + request.count});
    if (part.size() == 0) continue;
    Tensor piece = OnDevice(
        values.subspan(static_cast<size_t>(part.begin - begin), static_cast<size_t>(part.size())),
        zero_.device());
    if (r == 0) {
      Held(request).CopyFrom(piece);
    } else {
      zero_.communicator()->Send(TypedSpan(piece), r)->Wait();
    }
  }
}

/// A rank other than 0 does its part of a request.
void FlatAccess::Answer(const Request& request) {
  if (request.op == kRead && zero_.stage() == 0) return;  // rank 0 has everything itself
  Tensor held = Held(request);
  if (held.numel() == 0) return;
  if (request.op == kRead) {
    zero_.communicator()->Send(TypedSpan(held), 0)->Wait();
  } else {
    zero_.communicator()->Recv(TypedSpan(held), 0)->Wait();
  }
}

absl::Status FlatAccess::Serve() {
  while (true) {
    Request request{};
    Announce(request);
    if (request.op != kFinish) {
      Answer(request);
      continue;
    }
    // The state says which error.
    return {static_cast<absl::StatusCode>(request.state), BroadcastText(zero_.communicator(), "")};
  }
}

absl::Status FlatAccess::Finish(const absl::Status& status) {
  Request request{kFinish, static_cast<int64_t>(status.code()), 0, 0};
  Announce(request);
  BroadcastText(zero_.communicator(), std::string(status.message()));
  return status;
}

}  // namespace pando
