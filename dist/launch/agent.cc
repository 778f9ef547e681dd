#include "dist/launch/agent.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "dist/launch/exit_code.h"
#include "dist/launch/guardian.h"
#include "dist/launch/job_board.h"
#include "dist/launch/verdict.h"
#include "dist/launch/worker_environment.h"
#include "dist/launch/worker_process.h"
#include "engine/error.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// After the first failure: the others notice by themselves; are asked; are killed.
constexpr milliseconds kNotice{300}, kAsked{600};
// For other nodes' verdicts, and for the store that other nodes need.
constexpr milliseconds kOthers{500}, kStoreBreath{100};
constexpr int kPollMs = 20;

int64_t NowMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(now).count();
}

/// Signals as something to poll. Blocked from here on, in threads to come too.
class Signals {
 public:
  Signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int s : {SIGINT, SIGTERM, SIGCHLD, SIGHUP}) sigaddset(&set, s);
    sigprocmask(SIG_BLOCK, &set, &before_);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Signals() {
    close(fd_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }
  /// The next one that asks to end; 0 if none.
  int Next() const {
    signalfd_siginfo info;
    while (read(fd_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
    }
    return 0;
  }

 private:
  sigset_t before_;
  int fd_;
};

class Agent {
 public:
  explicit Agent(const LaunchOptions& options) : o_(options) {}

  int Run();

 private:
  struct Ended {
    int64_t at_ms;   ///< since 1970: nodes' clocks agree about that
    bool by_itself;  ///< not because the agent ended it
  };

  void StartWorkers();
  std::map<std::string, std::string> EnvironmentOf(int local_rank) const;
  void Wait();
  void PassSignals();
  void ReapWorkers();
  void EndAfterFailure();
  void SignalAll(int signal);
  bool AllEnded() const;
  std::vector<WorkerReport> Reports() const;
  int Finish();
  int Blame();
  void AwaitVerdicts(bool knows_enough);
  static void Print(std::ostream& out, int rank, const std::string& line) {
    out << "[" + std::to_string(rank) + "] " + line + "\n" << std::flush;
  }

  LaunchOptions o_;
  Signals signals_;
  std::unique_ptr<Guardian> guardian_;
  std::unique_ptr<JobBoard> board_;
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  std::vector<std::optional<Ended>> ended_;
  std::vector<WorkerReport> at_failure_;
  std::optional<Clock::time_point> failed_;
  int asked_to_end_ = 0;
  int passed_on_ = 0;    ///< the first signal that asked
  int last_signal_ = 0;  ///< sent because of a failure
};

int Agent::Run() {
  // What a worker starts and leaves behind becomes this process's child, not init's.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto guardian = Guardian::Start();
  if (!guardian.ok()) throw Error(std::string(guardian.status().message()));
  guardian_ = *std::move(guardian);
  auto board = JobBoard::Join(o_);
  if (absl::IsInvalidArgument(board.status())) {
    throw InvalidArgument(std::string(board.status().message()));
  }
  if (!board.ok()) throw Error(std::string(board.status().message()));
  board_ = *std::move(board);
  StartWorkers();
  while (!AllEnded()) {
    Wait();
    PassSignals();
    ReapWorkers();
    if (!failed_ && board_->OthersFailed()) {
      failed_ = Clock::now();
      at_failure_ = Reports();
    }
    if (failed_) EndAfterFailure();
  }
  KillDescendants(/*spared=*/guardian_->pid());
  const int code = Finish();
  board_->AwaitAllJoined();
  return code;
}

std::map<std::string, std::string> Agent::EnvironmentOf(int local_rank) const {
  std::map<std::string, std::string> e = {
      {"RANK", absl::StrCat(board_->first_rank() + local_rank)},
      {"WORLD_SIZE", absl::StrCat(board_->world_size())},
      {"LOCAL_RANK", absl::StrCat(local_rank)},
      {"LOCAL_WORLD_SIZE", absl::StrCat(o_.workers)},
      {"GROUP_RANK", absl::StrCat(o_.node_rank)},
      {"MASTER_ADDR", board_->master_address()},
      {"MASTER_PORT", absl::StrCat(board_->master_port())},
      {kStoreVariable, board_->store_url()},
      {kSecretVariable, board_->secret()},
      {kGenerationVariable, absl::StrCat(board_->generation())}};
  // Ranks of one machine share its cores, and must not spin on them while they wait.
  const auto unless_set = [&e](const char* name, const std::string& value) {
    if (std::getenv(name) == nullptr) e[name] = value;
  };
  if (o_.workers > 1) {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    unless_set("OMP_NUM_THREADS", absl::StrCat(std::max(1, cores / o_.workers)));
    unless_set("OMP_WAIT_POLICY", "passive");
  }
  return e;
}

void Agent::StartWorkers() {
  ended_.resize(static_cast<size_t>(o_.workers));
  for (int i = 0; i < o_.workers; ++i) {
    const int rank = board_->first_rank() + i;
    const auto on_out = [rank](const std::string& line) {
      // The result of a run is rank 0's line of JSON, for programs to read.
      if (rank == 0 && !line.empty() && line[0] == '{') {
        std::cout << line + "\n" << std::flush;
      } else {
        Print(std::cout, rank, line);
      }
    };
    const auto on_error = [rank](const std::string& line) { Print(std::cerr, rank, line); };
    auto worker = WorkerProcess::Start(o_.command, EnvironmentOf(i), on_out, on_error);
    if (!worker.ok()) throw InvalidArgument(std::string(worker.status().message()));
    guardian_->Watch((*worker)->pid());
    workers_.push_back(*std::move(worker));
  }
}

/// Until something happens, or a little while.
void Agent::Wait() {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  for (const auto& w : workers_) {
    for (const int fd : {w->out_fd(), w->error_fd()}) {
      if (fd >= 0) fds.push_back({fd, POLLIN, 0});
    }
  }
  poll(fds.data(), fds.size(), kPollMs);
  for (const auto& w : workers_) w->Read();
}

void Agent::PassSignals() {
  for (int signal; (signal = signals_.Next()) != 0;) {
    // The first lets workers finish their step and save; a second one means it.
    if (++asked_to_end_ == 1) passed_on_ = signal;
    SignalAll(asked_to_end_ == 1 ? signal : SIGKILL);
  }
}

void Agent::ReapWorkers() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (ended_[i] || !workers_[i]->Reap()) continue;
    guardian_->Forget(workers_[i]->pid());
    ended_[i] = Ended{NowMs(), last_signal_ == 0 && asked_to_end_ < 2};
    const ExitReason& exit = *workers_[i]->exit();
    // A program that does not catch the signal that was passed on has done as it was asked.
    const bool obeyed = asked_to_end_ > 0 && exit.signal == passed_on_;
    if (failed_ || exit.ok() || exit.code == kInterrupted || obeyed) continue;
    failed_ = Clock::now();
    // Before the others notice, as they will be busy with dying.
    at_failure_ = Reports();
    board_->ReportFailure(Judge(at_failure_), /*last=*/false);
  }
}

void Agent::EndAfterFailure() {
  const auto since = Clock::now() - *failed_;
  if (since > kAsked && last_signal_ != SIGKILL) {
    SignalAll(last_signal_ = SIGKILL);
  } else if (since > kNotice && last_signal_ == 0) {
    SignalAll(last_signal_ = SIGTERM);
  }
}

void Agent::SignalAll(int signal) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!ended_[i]) workers_[i]->Signal(signal);
  }
}

bool Agent::AllEnded() const {
  return std::all_of(ended_.begin(), ended_.end(), [](const auto& e) { return e.has_value(); });
}

std::vector<WorkerReport> Agent::Reports() const {
  const int64_t now =
      std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch()).count();
  std::vector<WorkerReport> reports;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const WorkerProcess& w = *workers_[i];
    WorkerReport r;
    r.rank = board_->first_rank() + static_cast<int>(i);
    r.ended = ended_[i] && ended_[i]->by_itself;
    if (r.ended) {
      r.exit = *w.exit();
      r.ended_ms = ended_[i]->at_ms;
    }
    const int64_t beat = w.progress().heartbeat_ms;
    r.silent_ms = beat == 0 ? 0 : now - beat;
    r.heard = beat != 0;
    r.phase = static_cast<Phase>(w.progress().phase.load());
    r.step = w.progress().step;
    r.collectives = w.progress().collectives;
    r.last_lines = {w.last_lines().begin(), w.last_lines().end()};
    reports.push_back(std::move(r));
  }
  return reports;
}

int Agent::Finish() {
  if (failed_) return Blame();
  const bool interrupted = std::any_of(workers_.begin(), workers_.end(), [](const auto& w) {
    return w->exit()->code == kInterrupted;
  });
  board_->ReportDone();
  while (!board_->OthersAreDone() && !board_->OthersFailed() && signals_.Next() == 0) {
    std::this_thread::sleep_for(kStoreBreath);
  }
  if (interrupted) return kInterrupted;
  const bool obeyed = std::any_of(workers_.begin(), workers_.end(),
                                  [](const auto& w) { return w->exit()->signal != 0; });
  return obeyed ? 128 + passed_on_ : static_cast<int>(kDone);
}

/// Until the other nodes have said whom they blame. A node that is lost is known to be when its
/// lease has run out: worth waiting for only if nobody is known to have died.
void Agent::AwaitVerdicts(bool knows_enough) {
  if (o_.nodes == 1) return;
  std::this_thread::sleep_for(kOthers);
  const auto until = *failed_ + JobBoard::LeaseTime();
  while (!knows_enough && !board_->HasAllVerdicts() && Clock::now() < until &&
         signals_.Next() == 0) {
    std::this_thread::sleep_for(kStoreBreath);
  }
}

/// Says who is to blame, of this node or another; returns the job's exit code.
int Agent::Blame() {
  if (asked_to_end_ >= 2) return 128 + SIGINT;
  // Who was silent or behind when it happened, and who has died since.
  std::vector<WorkerReport> reports = Reports();
  for (size_t i = 0; i < reports.size(); ++i) {
    if (reports[i].ended) continue;
    const std::vector<std::string> last_lines = reports[i].last_lines;
    reports[i] = at_failure_[i];
    reports[i].last_lines = last_lines;
  }
  Verdict worst = Judge(reports);
  board_->ReportFailure(worst, /*last=*/true);
  AwaitVerdicts(worst.weight == Verdict::kDied);
  for (const Verdict& v : board_->Verdicts()) {
    if (worst.weight == Verdict::kNobody || v < worst) worst = v;
  }
  std::cerr << "pando launch: " << worst.text << "\n";
  if (!worst.last_lines.empty()) {
    std::cerr << "pando launch: the last lines of rank " << worst.rank << ":\n";
    for (const std::string& line : worst.last_lines) Print(std::cerr, worst.rank, line);
  }
  for (const WorkerReport& r : reports) {
    if (r.rank == worst.rank) continue;
    std::cerr << "pando launch: rank " << r.rank << " "
              << (r.ended ? r.exit.ToString() : "was ended by this agent") << "\n";
  }
  std::cerr << std::flush;
  return worst.exit_code;
}

}  // namespace

int RunAgent(const LaunchOptions& options) {
  Require(options.workers > 0, "--workers: ", options.workers, " must be positive");
  Require(options.nodes > 0 && options.node_rank >= 0 && options.node_rank < options.nodes,
          "--node-rank: ", options.node_rank, " of ", options.nodes, " nodes");
  Require(options.nodes == 1 || (options.address != "0.0.0.0" && options.address != "::"),
          "--interface ", options.address,
          ": the others can't reach this node by that; give the address that they reach it by");
  Require(!options.command.empty(), "what is to be launched? give a program behind the options");
  return Agent(options).Run();
}

}  // namespace pando
