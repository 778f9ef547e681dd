// What ranks hold of gpt2-124m's parameters, gradients and optimizer state at each ZeRO stage,
// watched from initialisation on, beside the formulas of docs/zero.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iostream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "dist/communicator/gloo_communicator.h"
#include "dist/store/store_client.h"
#include "dist/store/store_server.h"
#include "engine/cpu/cpu_device.h"
#include "engine/error.h"
#include "models/gpt.h"
#include "train/train_step.h"

namespace pando {
namespace {

constexpr int64_t kLength = 64;

/// Bytes of state in use: whole ones, intervals and units alike.
int64_t StateInUse(Device& device) {
  int64_t bytes = 0;
  for (const auto& [name, size] : device.allocator().InUseByName()) {
    for (const char* ours : {"parameters", "gradients", "f32 master", "first mom", "second mom"}) {
      if (absl::StartsWith(name, ours)) bytes += size;
    }
  }
  return bytes;
}

/// The most that StateInUse has been while this lives.
class Watch {
 public:
  explicit Watch(Device& device)
      : device_(device), thread_([this] {
          while (!stop_) {
            most_ = std::max<int64_t>(most_, StateInUse(device_));
            std::this_thread::sleep_for(std::chrono::microseconds(200));
          }
        }) {}
  ~Watch() {
    stop_ = true;
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  int64_t Most() { return most_.exchange(0); }

 private:
  Device& device_;
  std::atomic<int64_t> most_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// In bytes.
struct Held {
  double formula, initializing, between_steps, stepping, largest_unit;
};

Held Measure(Communicator& peers, int stage, DType dtype, const std::vector<double>& shares) {
  Device& device = peers.device();
  Watch watch(device);
  ParameterRegistry registry;
  Gpt model(registry.Root(), GptPreset("gpt2-124m"));
  model.SetRecompute(true);
  Zero zero(registry, model.units(), {.stage = stage, .shares = shares, .dtype = dtype}, &peers,
            device);
  zero.Initialize(1);
  Held held{};
  held.initializing = static_cast<double>(watch.Most());
  const int64_t p = zero.layout().size();
  held.formula = static_cast<double>(ZeroStateBytes(stage, dtype, p, zero.own().size()));
  for (int u = 0; u < zero.schedule().units(); ++u) {
    held.largest_unit = std::max(held.largest_unit,
                                 static_cast<double>(zero.schedule().unit(u).interval.size()) * 4);
  }
  const std::vector<int32_t> tokens(kLength, 11);
  const std::vector<int64_t> one = {1};
  TrainStep step(model, zero, {}, peers.size(), kLength);
  for (int64_t i = 0; i < 2; ++i) {
    step.Run({i * peers.size() + peers.rank(), 1, kLength, tokens, tokens}, one, i, 1e-4);
  }
  zero.Forward(nullptr);  // what is still on its way
  device.Synchronize();
  held.stepping = static_cast<double>(watch.Most());
  held.between_steps = static_cast<double>(StateInUse(device));
  peers.Barrier();
  return held;
}

int Main(const std::vector<double>& shares) {
  const std::string secret = NewSecret();
  auto server = StoreServer::Start({.secret = secret});
  Require(server.ok(), std::string(server.status().message()));
  const int ranks = static_cast<int>(shares.size());
  std::cout << "MB; shares " << absl::StrJoin(shares, ", ")
            << "\nstage dtype rank   formula  initializing  between steps  stepping  "
               "largest unit\n";
  std::vector<std::thread> threads;
  threads.reserve(shares.size());
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto client = StoreClient::Connect({.endpoints = {(*server)->url()}, .secret = secret});
      GlooOptions gloo;
      gloo.rank = rank;
      gloo.size = ranks;
      gloo.store = client->get();
      gloo.secret = secret;
      const auto device = NewDeferredCpuDevice(1);
      const auto peers = NewGlooCommunicator(gloo, *device);
      for (int stage = 0; stage < 4; ++stage) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          const Held h = Measure(*peers, stage, dtype, shares);
          std::printf("%5d %5s %4d %9.1f %13.1f %14.1f %9.1f %13.1f\n", stage,
                      std::string(Name(dtype)).c_str(), rank, h.formula / 1e6, h.initializing / 1e6,
                      h.between_steps / 1e6, h.stepping / 1e6, h.largest_unit / 1e6);
          std::fflush(stdout);
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return 0;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) try {
  std::vector<double> shares = {0.25, 0.25, 0.25, 0.25};
  CLI::App app("What ranks hold of gpt2-124m's state at each ZeRO stage.");
  app.add_option("--shares", shares, "one per rank")->delimiter(',')->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return pando::Main(shares);
} catch (const std::exception& e) {
  std::cerr << "zero_memory: " << e.what() << "\n";
  return 1;
}
