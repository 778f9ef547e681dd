// Several ranks on emulated GPUs, over gloo: spans of device memory go through the host.
#include <gtest/gtest.h>

#include "engine/cuda/cuda_device.h"
#include "engine/error.h"
#include "tests/dist/communicator/ranks.h"
#include "tests/emulated_cuda/emulated_cuda.h"
#include "tests/train/tiny_gpt.h"

namespace pando {
namespace {

using Counts = std::vector<int64_t>;

class RanksCudaTest : public testing::TestWithParam<uint64_t> {
 protected:
  RanksCudaTest() { emulated_cuda::Configure({.seed = GetParam(), .devices = 2}); }
  ~RanksCudaTest() override { emulated_cuda::Configure({}); }
};

// Streams, and threads of kernels, in several orders.
INSTANTIATE_TEST_SUITE_P(Seeds, RanksCudaTest, testing::Values(1, 2, 3));

/// Runs body(communicator, stream) on ranks of which the third shares a GPU with the first, each
/// with a stream of its own.
void OnGpus(int ranks, const std::function<void(Communicator&)>& body) {
  MemoryStore store;
  OnThreads(ranks, [&](int rank) {
    Device& device = CudaDevice(rank % 2);
    const std::unique_ptr<Stream> stream = device.NewStream();
    const StreamGuard guard(*stream);
    const auto c = NewGlooCommunicator(TestGloo(store, rank, ranks), device);
    try {
      body(*c);
      c->Barrier();
    } catch (const std::exception& e) {
      c->Abort(e.what());
      throw;
    }
  });
}

/// Whole numbers, whose sums are exact.
Tensor Filled(int rank, int64_t count, Device& device) {
  std::vector<float> host(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    host[static_cast<size_t>(i)] = static_cast<float>((rank + 1) * (i % 7));
  }
  return Tensor::FromHost(host, {count}, device, "test");
}

TEST_P(RanksCudaTest, CollectivesReadAndWriteInStreamOrder) {
  constexpr int kRanks = 3;
  const Counts counts = {5000, 0, 1237};
  constexpr int64_t kTotal = 6237;
  OnGpus(kRanks, [&](Communicator& c) {
    const auto sum = [](int64_t i) { return static_cast<float>(6 * (i % 7)); };
    // Filled by kernels that nobody has waited for: doubled before, halved behind.
    Tensor data = Filled(c.rank(), kTotal, c.device());
    data.AddFrom(Filled(c.rank(), kTotal, c.device()));
    const auto work = c.ReduceScatterV(TypedSpan(data), counts);
    work->Wait();
    const int64_t begin = c.rank() == 2 ? 5000 : 0;
    const int64_t own = counts[static_cast<size_t>(c.rank())];
    const std::vector<float> mine = data.Narrow(begin, own).ToHost<float>();
    for (int64_t i = 0; i < own; ++i) {
      ASSERT_EQ(mine[static_cast<size_t>(i)], 2 * sum(begin + i));
    }
    // Several in flight.
    Tensor root = Filled(c.rank(), 999, c.device());
    Tensor all = Filled(c.rank(), 999, c.device());
    const auto a = c.AllGatherV(TypedSpan(data), counts);
    const auto b = c.Broadcast(TypedSpan(root), 1);
    const auto d = c.AllReduce(TypedSpan(all));
    d->Wait();
    b->Wait();
    a->Wait();
    all.AddFrom(root);
    const std::vector<float> gathered = data.ToHost<float>(), added = all.ToHost<float>();
    for (int64_t i = 0; i < kTotal; ++i) {
      ASSERT_EQ(gathered[static_cast<size_t>(i)], 2 * sum(i));
    }
    for (int64_t i = 0; i < 999; ++i) {
      ASSERT_EQ(added[static_cast<size_t>(i)], sum(i) + static_cast<float>(2 * (i % 7)));
    }
    if (c.rank() == 0) c.Send(TypedSpan(all), 2)->Wait();
    if (c.rank() == 2) {
      c.Recv(TypedSpan(root), 0)->Wait();
      EXPECT_EQ(root.ToHost<float>(), added);
    }
    // Nobody waits: the end does.
    c.AllReduce(TypedSpan(all));
  });
}

TEST_P(RanksCudaTest, AbortEndsAll) {
  EXPECT_THROW(OnGpus(3,
                      [](Communicator& c) {
                        Tensor data = Filled(c.rank(), 1000, c.device());
                        if (c.rank() == 1) throw PeerLost("given up");
                        for (int i = 0; i < 100; ++i) c.AllReduce(TypedSpan(data))->Wait();
                      }),
               PeerLost);
}

// As in one process, but for the order of sums, at every stage, with uneven shards and batches.
TEST_P(RanksCudaTest, ZeroTrainsAsOneProcessDoes) {
  const std::vector<double> want = TinyGpt({.micro_batches = {6, 6}}).Losses(4);
  for (int stage = 0; stage < 4; ++stage) {
    OnGpus(2, [&](Communicator& c) {
      TinyGpt gpt({.zero = {.stage = stage, .shares = {0.8, 0.2}},
                   .plan = SpreadBatch(TinyGpt::kSamples, {4, 2})},
                  c.device(), &c);
      const std::vector<double> got = gpt.Losses(4);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], 1e-6 * want[i]) << "stage " << stage << ", step " << i;
      }
    });
  }
}

}  // namespace
}  // namespace pando
