#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "dist/communicator/collective_thread.h"
#include "dist/communicator/communicator.h"

namespace pando {

/// A link to be tried out: every collective takes `latency` per hop and its bytes' time at
/// `bytes_per_second`, however fast the communicator under it is.
struct SlowLink {
  double latency = 1e-3;
  double bytes_per_second = 25e6;

  double Seconds(int64_t bytes, int ranks) const {
    return latency * (ranks - 1) + static_cast<double>(bytes) / bytes_per_second;
  }
};

class SlowCommunicator : public Communicator {
 public:
  SlowCommunicator(Communicator& inner, const SlowLink& link)
      : inner_(inner), link_(link), thread_([this] { inner_.Abort("aborted"); }) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Device& device() const override { return inner_.device(); }
  std::unique_ptr<Work> AllReduce(TypedSpan data, ReduceOp op) override {
    return Slowly(CollectiveKind::kAllReduce, [=, this] { return inner_.AllReduce(data, op); });
  }
  std::unique_ptr<Work> AllGatherV(TypedSpan data, absl::Span<const int64_t> counts) override {
    const std::vector<int64_t> c(counts.begin(), counts.end());
    return Slowly(CollectiveKind::kAllGather, [=, this] { return inner_.AllGatherV(data, c); });
  }
  std::unique_ptr<Work> ReduceScatterV(TypedSpan data, absl::Span<const int64_t> counts) override {
    const std::vector<int64_t> c(counts.begin(), counts.end());
    return Slowly(CollectiveKind::kReduceScatter,
                  [=, this] { return inner_.ReduceScatterV(data, c); });
  }
  std::unique_ptr<Work> Broadcast(TypedSpan data, int root) override {
    return Slowly(CollectiveKind::kBroadcast, [=, this] { return inner_.Broadcast(data, root); });
  }
  std::unique_ptr<Work> Send(TypedSpan data, int to) override {
    return Slowly(CollectiveKind::kSend, [=, this] { return inner_.Send(data, to); });
  }
  std::unique_ptr<Work> Recv(TypedSpan data, int from) override {
    return Slowly(CollectiveKind::kReceive, [=, this] { return inner_.Recv(data, from); });
  }
  void Barrier() override { inner_.Barrier(); }
  void Abort(const std::string& reason) override { thread_.Fail(reason); }
  CommunicatorStats stats() const override { return thread_.stats(); }

 private:
  int64_t Sent(CollectiveKind kind) const { return inner_.stats()[kind].bytes_sent; }

  template <typename Start>
  std::unique_ptr<Work> Slowly(CollectiveKind kind, Start start) {
    return thread_.Submit(kind, 0, [=, this] {
      const auto begin = std::chrono::steady_clock::now();
      const int64_t before = Sent(kind);
      start()->Wait();
      const double seconds = link_.Seconds(Sent(kind) - before, size());
      std::this_thread::sleep_until(begin + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                std::chrono::duration<double>(seconds)));
    });
  }

  Communicator& inner_;
  SlowLink link_;
  CollectiveThread thread_;
};

}  // namespace pando
