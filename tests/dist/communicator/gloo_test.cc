#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "dist/communicator/gloo_communicator.h"
#include "engine/error.h"
#include "tests/dist/communicator/ranks.h"

namespace pando {
namespace {

using Counts = std::vector<int64_t>;

int64_t Total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

/// Small whole numbers, whose sums every type holds exactly.
template <typename T>
T Value(int rank, int64_t i) {
  const auto n = static_cast<int32_t>((rank + 1) * (i % 5 - 1));
  if constexpr (std::is_integral_v<T>) {
    return n;
  } else {
    return RoundTo<T>(static_cast<ComputeType<T>>(n));
  }
}

template <typename T>
double ToDouble(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<double>(x);
  } else {
    return ToFloat(x);
  }
}

template <typename T>
std::vector<T> Filled(int rank, int64_t count) {
  std::vector<T> v(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) v[static_cast<size_t>(i)] = Value<T>(rank, i);
  return v;
}

double SumOverRanks(int ranks, int64_t i) {
  return 0.5 * ranks * (ranks + 1) * static_cast<double>(i % 5 - 1);
}

/// Counts of several kinds for `ranks` ranks; some larger than a segment.
std::vector<Counts> SomeCounts(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  Counts even(n, 1000), last(n, 0), first(n, 0), uneven(n), large(n, 3);
  last.back() = 17;
  first.front() = 300000;
  for (size_t r = 0; r < n; ++r) uneven[r] = static_cast<int64_t>(r * r * 1371 % 5000);
  large[n / 2] = 700001;
  return {even, last, first, uneven, large, Counts(n, 0)};
}

template <typename T>
class GlooTest : public testing::Test {};
using Types = testing::Types<float, double, BFloat16, Float16, int32_t, int64_t>;
TYPED_TEST_SUITE(GlooTest, Types);

TYPED_TEST(GlooTest, ReduceScatterAndAllGather) {
  using T = TypeParam;
  for (const int ranks : {1, 2, 3, 4, 7}) {
    OnRanks(ranks, [&](Communicator& c) {
      for (const Counts& counts : SomeCounts(ranks)) {
        std::vector<T> data = Filled<T>(c.rank(), Total(counts));
        c.ReduceScatterV(TypedSpan(absl::MakeSpan(data)), counts)->Wait();
        int64_t begin = 0;
        for (int r = 0; r < c.rank(); ++r) begin += counts[static_cast<size_t>(r)];
        const int64_t end = begin + counts[static_cast<size_t>(c.rank())];
        for (int64_t i = begin; i < end; ++i) {
          ASSERT_EQ(ToDouble(data[static_cast<size_t>(i)]), SumOverRanks(ranks, i)) << i;
        }
        c.AllGatherV(TypedSpan(absl::MakeSpan(data)), counts)->Wait();
        for (int64_t i = 0; i < Total(counts); ++i) {
          ASSERT_EQ(ToDouble(data[static_cast<size_t>(i)]), SumOverRanks(ranks, i)) << i;
        }
      }
    });
  }
}

TYPED_TEST(GlooTest, AllReduceBroadcastSend) {
  using T = TypeParam;
  for (const int ranks : {1, 2, 3, 4, 7}) {
    OnRanks(ranks, [&](Communicator& c) {
      for (const int64_t count : {0, 1, 5, 400000}) {
        std::vector<T> sum = Filled<T>(c.rank(), count), most = sum, root = sum;
        // Several in flight, waited for in another order.
        const auto a = c.AllReduce(TypedSpan(absl::MakeSpan(sum)));
        const auto b = c.AllReduce(TypedSpan(absl::MakeSpan(most)), ReduceOp::kMax);
        const auto d = c.Broadcast(TypedSpan(absl::MakeSpan(root)), ranks - 1);
        d->Wait();
        b->Wait();
        a->Wait();
        for (int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<size_t>(i);
          ASSERT_EQ(ToDouble(sum[at]), SumOverRanks(ranks, i));
          ASSERT_EQ(ToDouble(most[at]), ToDouble(Value<T>(i % 5 == 0 ? 0 : ranks - 1, i)));
          ASSERT_EQ(ToDouble(root[at]), ToDouble(Value<T>(ranks - 1, i)));
        }
      }
      // From each to the one behind.
      std::vector<T> mine = Filled<T>(c.rank(), 1000), before(1000);
      if (ranks > 1) {
        const auto to = [&] {
          c.Send(TypedSpan(absl::MakeSpan(mine)), (c.rank() + 1) % ranks)->Wait();
        };
        const int from = (c.rank() + ranks - 1) % ranks;
        if (c.rank() > 0) c.Recv(TypedSpan(absl::MakeSpan(before)), from)->Wait();
        to();
        if (c.rank() == 0) c.Recv(TypedSpan(absl::MakeSpan(before)), from)->Wait();
        for (int64_t i = 0; i < 1000; ++i) {
          ASSERT_EQ(ToDouble(before[static_cast<size_t>(i)]), ToDouble(Value<T>(from, i)));
        }
      }
    });
  }
}

// Rounding depends on the order of additions, which is the same everywhere and always.
TEST(Gloo, SameBitsOnAllRanksAndInAllRuns) {
  constexpr int kRanks = 5;
  constexpr int64_t kCount = 12345;
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    std::vector<std::vector<float>> results(kRanks);
    OnRanks(kRanks, [&](Communicator& c) {
      std::vector<float> data(kCount);
      for (size_t i = 0; i < data.size(); ++i) {
        data[i] = 1.0f / static_cast<float>(i * 7 + static_cast<size_t>(c.rank()) + 1);
      }
      c.AllReduce(TypedSpan(absl::MakeSpan(data)))->Wait();
      results[static_cast<size_t>(c.rank())] = data;
    });
    for (const auto& r : results) ASSERT_EQ(r, results[0]);
    runs.push_back(results[0]);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST(Gloo, CountsBytes) {
  OnRanks(3, [](Communicator& c) {
    const Counts counts = {10, 0, 5};
    std::vector<float> data(15);
    c.ReduceScatterV(TypedSpan(absl::MakeSpan(data)), counts)->Wait();
    c.AllGatherV(TypedSpan(absl::MakeSpan(data)), counts)->Wait();
    c.AllReduce(TypedSpan(absl::MakeSpan(data)))->Wait();
    c.Broadcast(TypedSpan(absl::MakeSpan(data)), 1)->Wait();
    const auto own = static_cast<size_t>(c.rank()), next = static_cast<size_t>((c.rank() + 1) % 3);
    const CommunicatorStats stats = c.stats();
    EXPECT_EQ(stats[CollectiveKind::kReduceScatter].bytes_sent, (15 - counts[own]) * 4);
    EXPECT_EQ(stats[CollectiveKind::kAllGather].bytes_sent, (15 - counts[next]) * 4);
    EXPECT_EQ(stats[CollectiveKind::kAllReduce].bytes_sent, (15 - 5 + 15 - 5) * 4);
    EXPECT_EQ(stats[CollectiveKind::kBroadcast].bytes_sent, c.rank() == 0 ? 0 : 60);
    EXPECT_EQ(stats[CollectiveKind::kAllReduce].calls, 1);
  });
}

TEST(Gloo, RefusesCountsThatDontFit) {
  OnRanks(2, [](Communicator& c) {
    std::vector<float> data(10);
    const TypedSpan span{absl::MakeSpan(data)};
    EXPECT_THROW(c.AllGatherV(span, Counts{5, 4}), InvalidArgument);
    EXPECT_THROW(c.ReduceScatterV(span, Counts{10}), InvalidArgument);
    EXPECT_THROW(c.ReduceScatterV(span, Counts{11, -1}), InvalidArgument);
    EXPECT_THROW(c.Broadcast(span, 2), InvalidArgument);
    EXPECT_THROW(c.Send(span, c.rank()), InvalidArgument);
  });
}

// Many times, as a write to a connection that is just being closed would end the process.
TEST(Gloo, AbortEndsWhatIsInFlightEverywhere) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_THROW(OnRanks(3,
                         [](Communicator& c) {
                           std::vector<float> data(100);
                           if (c.rank() == 1) throw Error("given up");
                           c.AllReduce(TypedSpan(absl::MakeSpan(data)))->Wait();
                         }),
                 PeerLost);
  }
}

TEST(Gloo, AfterAFailureEverythingFails) {
  OnThreads(1, [](int) {
    MemoryStore store;
    const auto c = NewGlooCommunicator(TestGloo(store, 0, 1), CpuDevice());
    c->Abort("for a reason");
    std::vector<float> data(10);
    try {
      c->AllReduce(TypedSpan(absl::MakeSpan(data)));
      FAIL();
    } catch (const PeerLost& e) {
      EXPECT_STREQ(e.what(), "for a reason");
    }
  });
}

TEST(Gloo, NamesTheRankThatDoesNotCome) {
  MemoryStore store;
  OnThreads(2, [&](int rank) {
    GlooOptions options = TestGloo(store, rank, 3);
    options.timeout = std::chrono::milliseconds(300);
    try {
      NewGlooCommunicator(options, CpuDevice());
      FAIL();
    } catch (const PeerLost& e) {
      EXPECT_THAT(std::string(e.what()), testing::HasSubstr("rank 2 did not come"));
    }
  });
}

TEST(Gloo, RefusesAWrongSecret) {
  MemoryStore store;
  OnThreads(2, [&](int rank) {
    GlooOptions options = TestGloo(store, rank, 2);
    options.secret = absl::StrCat("secret of ", rank);
    EXPECT_THROW(NewGlooCommunicator(options, CpuDevice()), PeerLost);
  });
}

TEST(Gloo, RefusesAnAddressThatIsNone) {
  MemoryStore store;
  GlooOptions options = TestGloo(store, 0, 2);
  options.address = "no.such.host.invalid";
  EXPECT_THROW(NewGlooCommunicator(options, CpuDevice()), InvalidArgument);
}

}  // namespace
}  // namespace pando
