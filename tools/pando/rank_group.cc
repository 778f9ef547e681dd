#include "tools/pando/rank_group.h"

#include <chrono>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dist/communicator/gloo_communicator.h"
#include "dist/launch/progress_page.h"
#include "dist/store/store_client.h"
#include "engine/error.h"
#include "tools/pando/saved_model.h"
#include "tools/pando/store_option.h"

namespace pando {
namespace {

PortRange ParsePorts(const std::string& text) {
  if (text.empty()) return {};
  PortRange range;
  const std::vector<std::string> ends = absl::StrSplit(text, '-');
  Require(ends.size() == 2 && absl::SimpleAtoi(ends[0], &range.first) &&
              absl::SimpleAtoi(ends[1], &range.last),
          "--port-range ", text, ": a range looks like 5000-5100");
  return range;
}

}  // namespace

RankGroup::RankGroup() : environment_(ValueOrThrow(FindWorkerEnvironment())) { StartHeartbeat(); }

void RankGroup::Form(const RankGroupOptions& options, Device& device) {
  if (environment_.alone()) return;
  Require(device.type() == DeviceType::kCpu,
          "several ranks train on CPUs only so far: give --device cpu");
  ReportPhase(Phase::kForming);
  const auto timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout_seconds * 1000));
  auto store = StoreClient::Connect(StoreFromEnvironment(environment_.store));
  if (!store.ok()) throw PeerLost(std::string(store.status().message()));
  GlooOptions gloo;
  gloo.rank = rank();
  gloo.size = size();
  gloo.store = store->get();
  gloo.prefix = absl::StrCat("pando/ranks/", environment_.generation);
  gloo.secret = environment_.secret;
  gloo.address = options.interface;
  gloo.ports = ParsePorts(options.port_range);
  gloo.timeout = timeout;
  communicator_ = NewGlooCommunicator(gloo, device);
}

void RankGroup::Leave() {
  if (communicator_ != nullptr) communicator_->Barrier();
  ReportPhase(Phase::kDone);
}

}  // namespace pando
