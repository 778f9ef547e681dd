#include "dist/communicator/gloo_communicator.h"

#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dist/communicator/collective_thread.h"
#include "dist/communicator/ring.h"
#include "engine/error.h"

namespace pando {
namespace {

int64_t Sum(absl::Span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(const GlooOptions& options, Device& device)
      : mesh_(options), device_(device), thread_([this] { mesh_.Abort(); }) {}

  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.size(); }
  Device& device() const override { return device_; }

  std::unique_ptr<Work> AllReduce(TypedSpan data, ReduceOp op) override {
    const std::vector<int64_t> counts = EvenCounts(data.count(), size());
    const int64_t sent = 2 * data.count() - counts[Own()] - counts[Next()];
    return Start(CollectiveKind::kAllReduce, sent * SizeOf(data.dtype()), [=, this] {
      RingReduceScatter(mesh_, data, counts, op);
      RingAllGather(mesh_, data, counts);
    });
  }

  std::unique_ptr<Work> AllGatherV(TypedSpan data, absl::Span<const int64_t> counts) override {
    CheckCounts("all-gather", data, counts);
    const std::vector<int64_t> slices(counts.begin(), counts.end());
    return Start(CollectiveKind::kAllGather, (data.count() - slices[Next()]) * SizeOf(data.dtype()),
                 [=, this] { RingAllGather(mesh_, data, slices); });
  }

  std::unique_ptr<Work> ReduceScatterV(TypedSpan data, absl::Span<const int64_t> counts) override {
    CheckCounts("reduce-scatter", data, counts);
    const std::vector<int64_t> slices(counts.begin(), counts.end());
    return Start(CollectiveKind::kReduceScatter,
                 (data.count() - slices[Own()]) * SizeOf(data.dtype()),
                 [=, this] { RingReduceScatter(mesh_, data, slices, ReduceOp::kSum); });
  }

  std::unique_ptr<Work> Broadcast(TypedSpan data, int root) override {
    CheckRank("broadcast", root);
    const bool last = static_cast<int>(Next()) == root;
    return Start(CollectiveKind::kBroadcast, last ? 0 : data.bytes(),
                 [=, this] { ChainBroadcast(mesh_, data, root); });
  }

  std::unique_ptr<Work> Send(TypedSpan data, int to) override {
    CheckPeer("send", to);
    return Start(CollectiveKind::kSend, data.bytes(), [=, this] {
      const auto buffer = mesh_.Open(data.data(), data.bytes());
      buffer->Send(to, 0, data.bytes());
      buffer->WaitSend();
    });
  }

  std::unique_ptr<Work> Recv(TypedSpan data, int from) override {
    CheckPeer("receive", from);
    return Start(CollectiveKind::kReceive, 0, [=, this] {
      const auto buffer = mesh_.Open(data.data(), data.bytes());
      buffer->Recv(from, 0, data.bytes());
      buffer->WaitRecv();
    });
  }

  void Barrier() override {
    // Nobody has the sum before everybody has come.
    int32_t all = 1;
    const TypedSpan data{absl::MakeSpan(&all, 1)};
    Start(CollectiveKind::kBarrier, 0, [=, this] {
      const std::vector<int64_t> counts = EvenCounts(1, size());
      RingReduceScatter(mesh_, data, counts, ReduceOp::kSum);
      RingAllGather(mesh_, data, counts);
    })->Wait();
  }

  void Abort(const std::string& reason) override { thread_.Fail(reason); }

  CommunicatorStats stats() const override { return thread_.stats(); }

 private:
  size_t Own() const { return static_cast<size_t>(rank()); }
  size_t Next() const { return static_cast<size_t>((rank() + 1) % size()); }

  std::unique_ptr<Work> Start(CollectiveKind kind, int64_t bytes_sent, std::function<void()> run) {
    // What the span's last writers queued must have run; on a CPU that is the rule.
    device_.current_stream().Synchronize();
    return thread_.Submit(kind, bytes_sent, std::move(run));
  }

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
  CollectiveThread thread_;
};

}  // namespace

std::unique_ptr<Communicator> NewGlooCommunicator(const GlooOptions& options, Device& device) {
  return std::make_unique<GlooCommunicator>(options, device);
}

}  // namespace pando
