#include "tools/pando/rank_group.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "dist/communicator/gloo_communicator.h"
#include "dist/launch/progress_page.h"
#include "dist/store/store_client.h"
#include "engine/error.h"
#include "tools/pando/saved_model.h"
#include "tools/pando/store_option.h"

namespace pando {
RankGroup::RankGroup() : environment_(ValueOrThrow(FindWorkerEnvironment())) { StartHeartbeat(); }

void RankGroup::Form(const RankGroupOptions& options, Device& device) {
  if (environment_.alone()) return;
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
  gloo.timeout = timeout;
  communicator_ = NewGlooCommunicator(gloo, device);
}

void RankGroup::Leave() {
  if (communicator_ != nullptr) communicator_->Barrier();
  ReportPhase(Phase::kDone);
}

}  // namespace pando
