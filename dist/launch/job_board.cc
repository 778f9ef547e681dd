#include "dist/launch/job_board.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "dist/launch/worker_environment.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr int64_t kLeaseSeconds = 10;
constexpr absl::Duration kLeaseBeat = absl::Seconds(2);
// How soon a watching thread notices that it is to end.
constexpr absl::Duration kBreath = absl::Milliseconds(200);

/// A port that nobody listens at now; 0 if that can't be told.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool ok = fd >= 0 && bind(fd, generic, size) == 0 && getsockname(fd, generic, &size) == 0;
  if (fd >= 0) close(fd);
  return ok ? ntohs(address.sin_port) : 0;
}

}  // namespace

std::string JobBoard::Key(const std::string& what, int node) const {
  return absl::StrCat("pando/", options_.job, "/", what, "/", node);
}

absl::StatusOr<std::unique_ptr<JobBoard>> JobBoard::Join(const LaunchOptions& options) {
  std::unique_ptr<JobBoard> board(new JobBoard(options));
  PANDO_RETURN_IF_ERROR(board->Connect());
  PANDO_RETURN_IF_ERROR(board->TakePlace());
  board->threads_.emplace_back([b = board.get()] { b->KeepLease(); });
  PANDO_RETURN_IF_ERROR(board->AwaitOthers());
  if (options.nodes > 1) {
    board->threads_.emplace_back([b = board.get()] { b->WatchOthers(); });
  }
  return board;
}

absl::Status JobBoard::Connect() {
  StoreOptions store = options_.store;
  if (store.endpoints.empty()) {
    if (options_.node_rank != 0) {
      return absl::InvalidArgumentError(
          "--store is missing: give the address that node 0 prints when it starts");
    }
    secret_ = store.secret.empty() ? NewSecret() : store.secret;
    PANDO_ASSIGN_OR_RETURN(
        server_, StoreServer::Start(
                     {.address = options_.address, .port = options_.port, .secret = secret_}));
    store.endpoints = {server_->url()};
    store.secret = secret_;
    if (options_.nodes > 1) {
      std::cerr << "pando launch: waiting for the other nodes: run there, with " << kSecretVariable
                << " as here, pando launch --nodes " << options_.nodes << " --node-rank I --store "
                << server_->url() << " ..." << std::endl;
    }
  }
  secret_ = store.secret;
  url_ = absl::StrJoin(store.endpoints, ",");
  PANDO_ASSIGN_OR_RETURN(store_, StoreClient::Connect(store));
  return absl::OkStatus();
}

absl::Status JobBoard::TakePlace() {
  PANDO_ASSIGN_OR_RETURN(lease_, store_->GrantLease(kLeaseSeconds));
  const std::string key = Key("node", options_.node_rank);
  PANDO_ASSIGN_OR_RETURN(
      const TxnResult taken,
      store_->Txn({Compare::Absent(key)},
                  {Operation::Put(
                      key, absl::StrCat(options_.workers, " ", options_.address, " ", FreePort()),
                      lease_)}));
  if (taken.succeeded) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "node ", options_.node_rank, " of job ", options_.job,
      " is there already: give every node another --node-rank, and every job another --job; one "
      "that has just ended is forgotten after ",
      kLeaseSeconds, " s"));
}

absl::Status JobBoard::AwaitOthers() {
  const absl::Time deadline = absl::Now() + absl::FromChrono(options_.join_timeout);
  for (int node = 0; node < options_.nodes; ++node) {
    const absl::StatusOr<std::string> text = store_->Await(Key("node", node), deadline);
    if (absl::IsDeadlineExceeded(text.status())) {
      return absl::DeadlineExceededError(absl::StrCat("node ", node, " of ", options_.nodes,
                                                      " did not come within ",
                                                      options_.join_timeout.count(), " s"));
    }
    if (!text.ok()) return text.status();
    int workers = 0;
    const std::vector<std::string> parts = absl::StrSplit(*text, ' ');
    int port = 0;
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &workers) ||
        !absl::SimpleAtoi(parts[2], &port)) {
      return absl::DataLossError(absl::StrCat("node ", node, " says ", *text));
    }
    if (node == 0) {
      master_address_ = parts[1];
      master_port_ = port;
    }
    first_ranks_.push_back(world_size_);
    if (node == options_.node_rank) first_rank_ = world_size_;
    world_size_ += workers;
  }
  PANDO_ASSIGN_OR_RETURN(const std::optional<KeyValue> first, store_->Get(Key("node", 0)));
  if (!first) return absl::AbortedError("node 0 has gone again");
  generation_ = first->create_revision;
  // What happened before all were there, such as nodes that came and went, is none of this run's.
  PANDO_ASSIGN_OR_RETURN(
      const std::vector<KeyValue> nodes,
      store_->List(KeyRange::Prefix(absl::StrCat("pando/", options_.job, "/node/"))));
  for (const KeyValue& kv : nodes) watch_from_ = std::max(watch_from_, kv.create_revision);
  return store_->Put(Key("joined", options_.node_rank), "", lease_);
}

void JobBoard::KeepLease() {
  absl::Time next = absl::Now();
  while (!closing_) {
    if (absl::Now() >= next) {
      // A store that doesn't answer is no failure of training: see whether it comes back.
      if (const absl::Status kept = store_->KeepAlive(lease_); !kept.ok() && !closing_) {
        std::cerr << "pando launch: " << kept.message() << std::endl;
      }
      next = absl::Now() + kLeaseBeat;
    }
    absl::SleepFor(std::min(kBreath, kLeaseBeat));
  }
}

void JobBoard::WatchOthers() {
  const KeyRange range = KeyRange::Prefix(absl::StrCat("pando/", options_.job, "/"));
  int64_t from = watch_from_;
  while (!closing_) {
    // What fails here (the store is gone) is tried again: training goes on without it.
    const absl::Status ignored =
        store_->Watch(range, from, absl::Now() + kBreath, [&](const StoreEvent& e) {
          from = e.kv.mod_revision + 1;
          NoteOther(e);
          return true;
        });
    if (absl::IsUnavailable(ignored)) absl::SleepFor(kBreath);
  }
}

void JobBoard::NoteOther(const StoreEvent& event) {
  const std::vector<std::string> parts = absl::StrSplit(event.kv.key, '/');
  int node = -1;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts.back(), &node) || node < 0 ||
      node >= options_.nodes || node == options_.node_rank) {
    return;
  }
  const std::string& what = parts[parts.size() - 2];
  const std::lock_guard lock(mutex_);
  if (event.deleted) {
    // Who has said its last goes in peace.
    if (what == "node" && finished_.insert(node).second) NoteLost(node);
  } else if (what == "joined") {
    joined_.insert(node);
  } else if (what == "done") {
    finished_.insert(node);
  } else if (what == "failure" || what == "verdict") {
    // Kept here, as the key goes with its agent.
    if (absl::StatusOr<Verdict> v = Verdict::Parse(event.kv.value); v.ok()) {
      verdicts_.push_back(*std::move(v));
    }
    if (what == "verdict") finished_.insert(node);
    others_failed_ = true;
  }
}

void JobBoard::NoteLost(int node) {
  Verdict v;
  v.weight = Verdict::kNodeLost;
  v.order = node;
  v.rank = first_ranks_[static_cast<size_t>(node)];
  v.text = absl::StrCat("rank ", v.rank, " and the rest of node ", node,
                        " are lost: its agent or its machine has died, or can't be reached");
  verdicts_.push_back(std::move(v));
  others_failed_ = true;
}

void JobBoard::ReportFailure(const Verdict& verdict, bool last) {
  if (options_.nodes == 1) return;
  if (last) {
    PutVerdict("verdict", verdict);
  } else {
    // A store that doesn't answer must not keep the agent from ending its workers.
    threads_.emplace_back([this, verdict] { PutVerdict("failure", verdict); });
  }
}

void JobBoard::PutVerdict(const std::string& what, const Verdict& verdict) {
  const absl::Status put = store_->Put(Key(what, options_.node_rank), verdict.Serialize(), lease_);
  if (put.ok()) return;
  const std::lock_guard lock(mutex_);
  Verdict v;
  v.weight = Verdict::kNodeLost;
  v.rank = 0;
  v.text = absl::StrCat("rank 0 and the rest of its node are lost, or only the store at ", url_,
                        ": ", std::string(put.message()));
  if (server_ == nullptr) verdicts_.push_back(std::move(v));
  for (int node = 0; node < options_.nodes; ++node) {  // of nobody more will be heard
    if (node != options_.node_rank) finished_.insert(node);
  }
}

void JobBoard::AwaitAllJoined() {
  const absl::Time deadline = absl::Now() + absl::FromChrono(LeaseTime());
  while (absl::Now() < deadline) {
    {
      const std::lock_guard lock(mutex_);
      std::set<int> known = joined_;
      known.insert(finished_.begin(), finished_.end());
      if (known.size() + 1 >= static_cast<size_t>(options_.nodes)) return;
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

bool JobBoard::HasAllVerdicts() {
  const std::lock_guard lock(mutex_);
  return finished_.size() + 1 >= static_cast<size_t>(options_.nodes);
}

std::chrono::milliseconds JobBoard::LeaseTime() {
  // And some for the store to notice.
  return std::chrono::seconds(kLeaseSeconds + 2);
}

std::vector<Verdict> JobBoard::Verdicts() {
  const std::lock_guard lock(mutex_);
  std::set<int> lost;
  for (const Verdict& v : verdicts_) {
    if (v.weight == Verdict::kNodeLost) lost.insert(v.rank);
  }
  if (options_.nodes < 3 || static_cast<int>(lost.size()) < options_.nodes - 1) return verdicts_;
  // That all the others have died at once is less likely than another thing.
  Verdict v;
  v.weight = Verdict::kNodeLost;
  v.rank = first_rank_;
  v.text = absl::StrCat("rank ", first_rank_, " and the rest of node ", options_.node_rank,
                        " have lost all other nodes at once: this node's link is down");
  return {v};
}

void JobBoard::ReportDone() {
  if (options_.nodes == 1) return;
  const absl::Status put = store_->Put(Key("done", options_.node_rank), "", lease_);
  if (!put.ok()) std::cerr << "pando launch: " << put.message() << "\n";
}

bool JobBoard::OthersAreDone() {
  if (options_.nodes == 1 || server_ == nullptr) return true;  // nobody needs this node's store
  const auto nodes = store_->List(KeyRange::Prefix(absl::StrCat("pando/", options_.job, "/node/")));
  const auto done = store_->List(KeyRange::Prefix(absl::StrCat("pando/", options_.job, "/done/")));
  return !nodes.ok() || !done.ok() || done->size() >= nodes->size();
}

JobBoard::~JobBoard() {
  closing_ = true;
  for (std::thread& t : threads_) t.join();
  if (lease_ != 0 && store_ != nullptr) store_->RevokeLease(lease_).IgnoreError();
}

}  // namespace pando
