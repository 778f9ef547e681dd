// Times reduce-scatter and all-gather over ranks that are processes, for even and very uneven
// shares, beside what the bytes of the busiest rank take at the bandwidth measured in the same run,
// and beside padding every share to the largest, which is what collectives of equal counts need.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "dist/communicator/gloo_communicator.h"
#include "dist/store/store_client.h"
#include "dist/store/store_server.h"
#include "engine/cpu/cpu_device.h"
#include "engine/error.h"
#include "tools/bench/timing.h"

namespace pando {
namespace {

struct Options {
  int64_t mib = 64;
  int ranks = 4;
  int rounds = 10;
  std::vector<double> shares = {0.85, 0.05, 0.05, 0.05};
};

using Counts = std::vector<int64_t>;

Counts CountsOf(int64_t elements, const std::vector<double>& shares) {
  Counts counts;
  for (const double s : shares)
    counts.push_back(static_cast<int64_t>(s * static_cast<double>(elements)));
  counts.back() += elements - std::accumulate(counts.begin(), counts.end(), int64_t{0});
  return counts;
}

/// Most elements that a rank sends: to reduce all but its own, to gather all but the next one's.
int64_t Busiest(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0}) -
         *std::min_element(counts.begin(), counts.end());
}

class Rank {
 public:
  Rank(const Options& o, const StoreOptions& store, int rank) : o_(o) {
    auto client = StoreClient::Connect(store);
    if (!client.ok()) throw Error(std::string(client.status().message()));
    GlooOptions gloo;
    gloo.rank = rank;
    gloo.size = o.ranks;
    gloo.store = client->get();
    gloo.secret = store.secret;
    peers_ = NewGlooCommunicator(gloo, CpuDevice());
    gloo.prefix += "/plain";
    plain_ = std::make_unique<GlooMesh>(gloo);
  }

  void Run() {
    const int64_t elements = (o_.mib << 20) / 4;
    const Counts even =
        CountsOf(elements, std::vector<double>(static_cast<size_t>(o_.ranks), 1.0 / o_.ranks));
    const Counts uneven = CountsOf(elements, o_.shares);
    const Counts padded(uneven.size(), *std::max_element(uneven.begin(), uneven.end()));
    data_.resize(static_cast<size_t>(padded[0] * o_.ranks), 1.0F);
    const double bandwidth = RingBandwidth();
    nlohmann::ordered_json out = {
        {"mib", o_.mib}, {"ranks", o_.ranks}, {"bytes_per_second", bandwidth}};
    for (const bool reduce : {true, false}) {
      nlohmann::ordered_json kind;
      for (const auto& [name, counts] : {std::pair<const char*, const Counts&>{"even", even},
                                         {"uneven", uneven},
                                         {"padded", padded}}) {
        const double seconds = Best([&, &c = counts] { Collective(reduce, c); });
        const double floor = static_cast<double>(Busiest(counts)) * 4 / bandwidth;
        kind[name] = {{"seconds", seconds}, {"over_busiest_rank", seconds / floor}};
      }
      out[reduce ? "reduce_scatter" : "all_gather"] = kind;
    }
    if (peers_->rank() == 0) std::cout << out.dump() << std::endl;
    peers_->Barrier();
  }

 private:
  void Collective(bool reduce, const Counts& counts) {
    const TypedSpan span(data_.data(), std::accumulate(counts.begin(), counts.end(), int64_t{0}),
                         DType::kF32);
    (reduce ? peers_->ReduceScatterV(span, counts) : peers_->AllGatherV(span, counts))->Wait();
  }

  /// Bytes a second that each rank sends to the next one, all at once, in one plain message: a
  /// ring's links without a ring's work.
  double RingBandwidth() {
    const int next = (plain_->rank() + 1) % o_.ranks;
    const int before = (plain_->rank() + o_.ranks - 1) % o_.ranks;
    const int64_t bytes = (o_.mib << 20) / 2;
    std::vector<char> in(static_cast<size_t>(bytes)), out(in.size(), 'x');
    const auto from = plain_->Open(out.data(), bytes), into = plain_->Open(in.data(), bytes);
    return static_cast<double>(bytes) / Best([&] {
             into->Recv(before, 0, bytes);
             from->Send(next, 0, bytes);
             into->WaitRecv();
             from->WaitSend();
           });
  }

  template <typename F>
  double Best(F run) {
    double best = 1e9;
    for (int i = 0; i <= o_.rounds; ++i) {
      peers_->Barrier();
      const double seconds = SecondsOf(run);
      if (i > 0) best = std::min(best, seconds);
    }
    double worst_rank[] = {best};
    peers_->AllReduce(TypedSpan(absl::MakeSpan(worst_rank)), ReduceOp::kMax)->Wait();
    return worst_rank[0];
  }

  Options o_;
  std::unique_ptr<Communicator> peers_;
  std::unique_ptr<GlooMesh> plain_;
  std::vector<float> data_;
};

int Main(const Options& o) {
  Require(static_cast<int>(o.shares.size()) == o.ranks, "--shares: give one per rank");
  int ready[2];
  Require(pipe(ready) == 0, "no pipe");
  // Ranks are forked before anything starts a thread.
  std::vector<pid_t> children;
  const std::string secret = NewSecret();
  for (int rank = 0; rank < o.ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      int port = 0;
      if (read(ready[0], &port, sizeof(port)) != sizeof(port)) _exit(1);
      Rank(o, {.endpoints = {"http://127.0.0.1:" + std::to_string(port)}, .secret = secret}, rank)
          .Run();
      _exit(0);
    }
    children.push_back(pid);
  }
  auto server = StoreServer::Start({.secret = secret});
  Require(server.ok(), std::string(server.status().message()));
  for (int rank = 0; rank < o.ranks; ++rank) {
    const int port = (*server)->port();
    Require(write(ready[1], &port, sizeof(port)) == sizeof(port), "the pipe is gone");
  }
  int failed = 0;
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    failed += status != 0 ? 1 : 0;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) try {
  pando::Options o;
  CLI::App app("Times uneven collectives over ranks that are processes of this machine.");
  app.add_option("--mib", o.mib, "size of the whole")->capture_default_str();
  app.add_option("--ranks", o.ranks)->capture_default_str();
  app.add_option("--rounds", o.rounds)->capture_default_str();
  app.add_option("--shares", o.shares, "of the uneven case")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  return pando::Main(o);
} catch (const std::exception& e) {
  std::cerr << "collective_bench: " << e.what() << "\n";
  return 1;
}
