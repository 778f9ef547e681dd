// What is left when a program that saves is killed, or the disk is full.

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "ckpt/checkpoint_folder.h"
#include "ckpt/checkpoint_reader.h"
#include "ckpt/checkpoint_writer.h"
#include "tests/ckpt/sample_checkpoint.h"
#include "tests/ckpt/temp_folder.h"

namespace pando {
namespace {

constexpr int kKeep = 2;

// A forked child that runs `work` and exits with its result.
pid_t Fork(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  return child;
}

int ExitCode(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Saves step after step, from where the folder stands, each twice; reports through `pipe_fd` every
// step that is durable. Ends by being killed.
int SaveForEver(const std::string& root, int pipe_fd) {
  const auto run = RunFolder::Prepare(root, 0);
  if (!run.ok()) return 1;
  const auto found = FindLatest(root);
  if (!found.ok() || !found->skipped.empty()) return 2;
  std::vector<std::string> notes;
  for (int64_t step = found->path.empty() ? 1 : found->manifest.info.data_step;; ++step) {
    for (int again = 0; again < 2; ++again) {
      if (!SaveSample(*run, step).ok()) return 3;
      if (write(pipe_fd, &step, sizeof(step)) != sizeof(step)) return 4;
      if (!KeepNewest(*run, step, kKeep, &notes).ok()) return 5;
    }
  }
}

// Kills savers, each at another moment. The moments follow the saver's own pace, so that a slow
// disk changes nothing: after a random number of saves, and a random part of the time of one more.
class Killer {
 public:
  // Lets a child save in `root`, kills it, and returns the last step that it reported (0: none).
  int64_t SaveAndKill(const std::string& root) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = Fork([&] { return SaveForEver(root, ends[1]); });
    close(ends[1]);
    int64_t last = 0;
    const auto start = std::chrono::steady_clock::now();
    const auto saves = static_cast<int>(random_() % 4);
    for (int i = 0; i < saves; ++i) EXPECT_TRUE(ReadStep(ends[0], &last));
    if (saves > 0) pace_ = (std::chrono::steady_clock::now() - start) / saves;
    // Early moments more often: there old checkpoints are deleted, which is quick.
    const double part = std::uniform_real_distribution<double>(0, 1.2)(random_);
    std::this_thread::sleep_for(pace_ * part * part * part);
    kill(child, SIGKILL);
    EXPECT_EQ(ExitCode(child), -1) << "the child ended by itself";
    while (ReadStep(ends[0], &last)) {
    }
    close(ends[0]);
    return last;
  }

 private:
  static bool ReadStep(int fd, int64_t* step) {
    int64_t value;
    if (read(fd, &value, sizeof(value)) != sizeof(value)) return false;
    *step = value;
    return true;
  }

  std::mt19937_64 random_{7};
  std::chrono::duration<double> pace_ = std::chrono::milliseconds(20);  // of one save
};

TEST(Crash, KilledAtAnyMomentLosesNothing) {
  const TempFolder folder;
  const std::string root = folder.File("run");
  Killer killer;
  int64_t durable = 0;
  int with_leftovers = 0;
  for (int kill_number = 0; kill_number < 50; ++kill_number) {
    durable = std::max(durable, killer.SaveAndKill(root));
    if (!PathExists(root)) continue;      // killed before it could begin
    const auto found = FindLatest(root);  // before anything is cleaned up
    ASSERT_OK(found);
    for (const SkippedCheckpoint& skipped : found->skipped) {
      ADD_FAILURE() << "a bad checkpoint has a good name: " << skipped.reason;
    }
    const std::vector<int64_t> steps = *ListSteps(root);
    // Nor has one that was being deleted.
    for (const int64_t step : steps) EXPECT_OK(Verify(JoinPath(root, StepFolderName(step))));
    if (durable > 0) {
      ASSERT_FALSE(found->path.empty());
      EXPECT_GE(found->manifest.info.data_step, durable);
      EXPECT_OK(CheckSample(found->path, found->manifest.info.data_step));
    }
    const auto run = RunFolder::Prepare(root, 0);
    ASSERT_OK(run);
    with_leftovers += run->notes().empty() ? 0 : 1;
    for (const std::string& name : NamesIn(root)) {
      int64_t step;
      EXPECT_TRUE(name == kRunMarkerFile || name == kRunLockFile ||
                  ParseStepFolderName(name, &step))
          << name;
    }
    EXPECT_LE(ListSteps(root)->size(), static_cast<size_t>(kKeep) + 1);
  }
  EXPECT_GT(with_leftovers, 0) << "no kill came in the middle of a save";
}

// Saves until saving fails; 0 if it failed as it should: ResourceExhausted, nothing left of the
// failed save, and the last good checkpoint as it was.
int SaveUntilFull(const std::string& root) {
  const auto run = RunFolder::Prepare(root, 0);
  if (!run.ok()) return absl::IsResourceExhausted(run.status()) ? 0 : 10;
  int64_t step = 1;
  absl::Status status;
  while (step < 100 && (status = SaveSample(*run, step)).ok()) ++step;
  if (!absl::IsResourceExhausted(status)) return 11;
  for (const std::string& name : NamesIn(root)) {
    int64_t parsed;
    if (name[0] == '.' && name != kRunLockFile) return 12;
    if (ParseStepFolderName(name, &parsed) && parsed >= step) return 13;
  }
  const auto found = FindLatest(root);
  if (!found.ok() || !found->skipped.empty()) return 14;
  if (step == 1) return found->path.empty() ? 0 : 15;
  return CheckSample(found->path, step - 1).ok() ? 0 : 16;
}

// Lets this process mount: directly, or as root of a user namespace of its own.
bool TakeOwnMountNamespace() {
  const uid_t user = geteuid();
  if (unshare(CLONE_NEWNS) == 0) return true;
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  // Without a mapping no file can be created.
  WriteBytes("/proc/self/uid_map", absl::StrCat("0 ", user, " 1"));
  return geteuid() == 0;
}

TEST(Crash, FullDiskIsReportedAndHarmless) {
  const TempFolder folder;
  constexpr int kNotPermitted = 77;
  // Sizes from too small for anything to room for a few; the disk is mounted in a namespace of the
  // child's own, and goes with it.
  for (int kib = 8; kib <= 128; kib += 8) {
    const int code = ExitCode(Fork([&] {
      if (!TakeOwnMountNamespace()) return kNotPermitted;
      const std::string options = absl::StrCat("size=", kib, "k");
      if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("tmpfs", folder.path().c_str(), "tmpfs", 0, options.c_str()) != 0) {
        return kNotPermitted;
      }
      return SaveUntilFull(folder.path());
    }));
    if (code == kNotPermitted) GTEST_SKIP() << "may not mount a small disk here";
    EXPECT_EQ(code, 0) << kib << " KiB";
  }
}

TEST(Crash, FileSizeLimitIsReportedAndHarmless) {
  for (rlim_t limit = 0; limit <= 8192; limit += 256) {
    const TempFolder folder;
    const int code = ExitCode(Fork([&] {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limits = {limit, limit};
      if (setrlimit(RLIMIT_FSIZE, &limits) != 0) return 1;
      const auto run = RunFolder::Prepare(folder.path(), 0);
      if (!run.ok()) return absl::IsResourceExhausted(run.status()) ? 0 : 2;
      const absl::Status status = SaveSample(*run, 1);
      const auto steps = ListSteps(folder.path());
      if (status.ok()) return steps->size() == 1 ? 0 : 3;
      if (!absl::IsResourceExhausted(status) || !steps->empty()) return 4;
      return NamesIn(folder.path()).size() == 2 ? 0 : 5;
    }));
    EXPECT_EQ(code, 0) << limit;
  }
}

}  // namespace
}  // namespace pando
