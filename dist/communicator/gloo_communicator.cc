#include "dist/communicator/gloo_communicator.h"

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dist/communicator/collective_thread.h"
#include "dist/communicator/host_staging.h"
#include "dist/communicator/ring.h"
#include "engine/error.h"

namespace pando {
namespace {

int64_t Sum(absl::Span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

/// A collective on device memory, behind which comes the way back there.
class StagedWork : public Work {
 public:
  StagedWork(std::unique_ptr<Work> work, std::shared_ptr<HostStaging::Trip> trip)
      : trip_(std::move(trip)), work_(std::move(work)) {}
  void Wait() override {
    work_->Wait();
    trip_->OrderBehindUp();
  }

 private:
  // Destroyed in this order: the collective ends before its buffer is given back.
  std::shared_ptr<HostStaging::Trip> trip_;
  std::unique_ptr<Work> work_;
};

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(const GlooOptions& options, Device& device)
      : mesh_(options), device_(device), thread_([this] { mesh_.Abort(); }) {
    if (device.type() != DeviceType::kCpu) staging_.emplace(device);
  }

  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.size(); }
  Device& device() const override { return device_; }

  std::unique_ptr<Work> AllReduce(TypedSpan data, ReduceOp op) override {
    const std::vector<int64_t> counts = EvenCounts(data.count(), size());
    const int64_t sent = 2 * data.count() - counts[Own()] - counts[Next()];
    return Start({.kind = CollectiveKind::kAllReduce,
                  .bytes_sent = sent * SizeOf(data.dtype()),
                  .data = data,
                  .reads = data,
                  .writes = data,
                  .run = [=, this](TypedSpan host) {
                    RingReduceScatter(mesh_, host, counts, op);
                    RingAllGather(mesh_, host, counts);
                  }});
  }

  std::unique_ptr<Work> AllGatherV(TypedSpan data, absl::Span<const int64_t> counts) override {
    CheckCounts("all-gather", data, counts);
    const std::vector<int64_t> slices(counts.begin(), counts.end());
    return Start({.kind = CollectiveKind::kAllGather,
                  .bytes_sent = (data.count() - slices[Next()]) * SizeOf(data.dtype()),
                  .data = data,
                  .reads = OwnSlice(data, slices),
                  .writes = data,
                  .run = [=, this](TypedSpan host) { RingAllGather(mesh_, host, slices); }});
  }

  std::unique_ptr<Work> ReduceScatterV(TypedSpan data, absl::Span<const int64_t> counts) override {
    CheckCounts("reduce-scatter", data, counts);
    const std::vector<int64_t> slices(counts.begin(), counts.end());
    return Start({.kind = CollectiveKind::kReduceScatter,
                  .bytes_sent = (data.count() - slices[Own()]) * SizeOf(data.dtype()),
                  .data = data,
                  .reads = data,
                  .writes = OwnSlice(data, slices),
                  .run = [=, this](TypedSpan host) {
                    RingReduceScatter(mesh_, host, slices, ReduceOp::kSum);
                  }});
  }

  std::unique_ptr<Work> Broadcast(TypedSpan data, int root) override {
    CheckRank("broadcast", root);
    const bool last = static_cast<int>(Next()) == root;
    return Start({.kind = CollectiveKind::kBroadcast,
                  .bytes_sent = last ? 0 : data.bytes(),
                  .data = data,
                  .reads = rank() == root ? data : TypedSpan(),
                  .writes = rank() == root ? TypedSpan() : data,
                  .run = [=, this](TypedSpan host) { ChainBroadcast(mesh_, host, root); }});
  }

  std::unique_ptr<Work> Send(TypedSpan data, int to) override {
    CheckPeer("send", to);
    return Start({.kind = CollectiveKind::kSend,
                  .bytes_sent = data.bytes(),
                  .data = data,
                  .reads = data,
                  .run = [=, this](TypedSpan host) {
                    const auto buffer = mesh_.Open(host.data(), host.bytes());
                    buffer->Send(to, 0, host.bytes());
                    buffer->WaitSend();
                  }});
  }

  std::unique_ptr<Work> Recv(TypedSpan data, int from) override {
    CheckPeer("receive", from);
    return Start({.kind = CollectiveKind::kReceive,
                  .data = data,
                  .writes = data,
                  .run = [=, this](TypedSpan host) {
                    const auto buffer = mesh_.Open(host.data(), host.bytes());
                    buffer->Recv(from, 0, host.bytes());
                    buffer->WaitRecv();
                  }});
  }

  void Barrier() override {
    device_.current_stream().Synchronize();
    // Nobody has the sum before everybody has come.
    int32_t all = 1;
    const TypedSpan data{absl::MakeSpan(&all, 1)};
    thread_
        .Submit(CollectiveKind::kBarrier, 0,
                [=, this] {
                  const std::vector<int64_t> counts = EvenCounts(1, size());
                  RingReduceScatter(mesh_, data, counts, ReduceOp::kSum);
                  RingAllGather(mesh_, data, counts);
                })
        ->Wait();
  }

  void Abort(const std::string& reason) override { thread_.Fail(reason); }

  CommunicatorStats stats() const override { return thread_.stats(); }

 private:
  struct Collective {
    CollectiveKind kind;
    int64_t bytes_sent = 0;
    TypedSpan data;         ///< on the device
    TypedSpan reads = {};   ///< what of it `run` reads
    TypedSpan writes = {};  ///< and writes
    std::function<void(TypedSpan host)> run;
  };

  std::unique_ptr<Work> Start(Collective c) {
    const CollectiveKind kind = c.kind;
    const int64_t bytes_sent = c.bytes_sent;
    if (!staging_) {
      // What the span's last writers queued must have run; on a CPU that is the rule.
      device_.current_stream().Synchronize();
      return thread_.Submit(kind, bytes_sent, [c = std::move(c)] { c.run(c.data); });
    }
    const auto trip = std::make_shared<HostStaging::Trip>(*staging_, c.data);
    trip->Down(c.reads);
    auto work = thread_.Submit(kind, bytes_sent, [c = std::move(c), trip = trip.get()] {
      trip->AwaitDown();
      c.run(trip->host());
      trip->Up(c.writes);
    });
    return std::make_unique<StagedWork>(std::move(work), trip);
  }

  TypedSpan OwnSlice(TypedSpan data, const std::vector<int64_t>& slices) const {
    const int64_t begin = std::accumulate(slices.begin(), slices.begin() + rank(), int64_t{0});
    return data.Part(begin, slices[Own()]);
  }
  size_t Own() const { return static_cast<size_t>(rank()); }
  size_t Next() const { return static_cast<size_t>((rank() + 1) % size()); }

  void CheckCounts(const char* what, TypedSpan data, absl::Span<const int64_t> counts) const {
    Require(static_cast<int>(counts.size()) == size(), what, ": ", counts.size(), " counts for ",
            size(), " ranks");
    for (const int64_t count : counts) Require(count >= 0, what, ": a count of ", count);
    Require(Sum(counts) == data.count(), what, ": counts add up to ", Sum(counts), ", not to ",
            data.count());
  }
  void CheckRank(const char* what, int rank) const {
    Require(rank >= 0 && rank < size(), what, ": rank ", rank, " of ", size());
  }
  void CheckPeer(const char* what, int peer) const {
    CheckRank(what, peer);
    Require(peer != rank(), what, ": rank ", peer, " is this rank itself");
  }

  GlooMesh mesh_;
  Device& device_;
  std::optional<HostStaging> staging_;
  CollectiveThread thread_;
};

}  // namespace

std::unique_ptr<Communicator> NewGlooCommunicator(const GlooOptions& options, Device& device) {
  return std::make_unique<GlooCommunicator>(options, device);
}

}  // namespace pando
