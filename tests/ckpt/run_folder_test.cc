#include "ckpt/run_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "absl/strings/match.h"
#include "ckpt/checkpoint_folder.h"
#include "ckpt/checkpoint_writer.h"
#include "tests/ckpt/sample_checkpoint.h"
#include "tests/ckpt/temp_folder.h"

namespace pando {
namespace {

TEST(RunFolder, IsCreatedAndTakenAgain) {
  const TempFolder folder;
  const std::string root = folder.File("a/b/run");
  {
    const auto run = RunFolder::Prepare(root, 1000);
    ASSERT_OK(run);
    EXPECT_TRUE(run->notes().empty());
    EXPECT_EQ(NamesIn(root), (std::vector<std::string>{kRunLockFile, kRunMarkerFile}));
  }
  WriteBytes(JoinPath(root, "log.jsonl"), "{}");
  EXPECT_OK(RunFolder::Prepare(root, 1000));
}

TEST(RunFolder, RefusesOtherPeoplesFolders) {
  const TempFolder folder;
  WriteBytes(folder.File("thesis.tex"), "");
  const absl::Status status = RunFolder::Prepare(folder.path(), 0).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "thesis.tex")) << status;
  EXPECT_EQ(NamesIn(folder.path()).size(), 1u);  // nothing written into it
  WriteBytes(folder.File(kRunMarkerFile), "{\"version\": 2}");
  EXPECT_TRUE(absl::IsFailedPrecondition(RunFolder::Prepare(folder.path(), 0).status()));
  EXPECT_FALSE(RunFolder::Prepare(folder.File("thesis.tex"), 0).ok());
}

TEST(RunFolder, AnEmptyDiskIsNobodys) {
  const TempFolder folder;
  mkdir(folder.File("lost+found").c_str(), 0700);
  EXPECT_OK(RunFolder::Prepare(folder.path(), 0));
}

TEST(RunFolder, HasOneWriter) {
  const TempFolder folder;
  auto run = RunFolder::Prepare(folder.path(), 0);
  ASSERT_OK(run);
  {
    const RunFolder moved = *std::move(run);
    const absl::Status status = RunFolder::Prepare(folder.path(), 0).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), std::to_string(getpid()))) << status;
  }
  EXPECT_OK(RunFolder::Prepare(folder.path(), 0));
}

TEST(RunFolder, WantsRoomForTwo) {
  const TempFolder folder;
  const absl::Status status =
      RunFolder::Prepare(folder.path(), std::numeric_limits<int64_t>::max() / 4).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST(RunFolder, NeedsPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const TempFolder folder;
  chmod(folder.path().c_str(), 0500);
  const absl::Status status = RunFolder::Prepare(folder.path(), 0).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
}

class Leftovers : public ::testing::Test {
 protected:
  Leftovers() {
    const auto run = RunFolder::Prepare(folder_.path(), 0);
    EXPECT_OK(run);
    EXPECT_OK(SaveSample(*run, 1));
  }

  // A folder like that of a checkpoint that was being written or deleted.
  void Leave(const std::string& name, const std::string& file) {
    mkdir(folder_.File(name).c_str(), 0700);
    WriteBytes(JoinPath(folder_.File(name), file), "x");
  }

  std::vector<std::string> NamesAfterPrepare() {
    const auto run = RunFolder::Prepare(folder_.path(), 0);
    EXPECT_OK(run);
    notes_ = run->notes();
    std::vector<std::string> names;
    for (const std::string& name : NamesIn(folder_.path())) {
      if (name != kRunMarkerFile && name != kRunLockFile) names.push_back(name);
    }
    return names;
  }

  const TempFolder folder_;
  std::vector<std::string> notes_;
};

TEST_F(Leftovers, OfKilledProgramsAreRemoved) {
  Leave(".step-00000002.tmp-99-0123456789abcdef", "model.safetensors");
  Leave(".trash-step-00000003-99-0123456789abcdef", "optimizer.safetensors");
  Leave(".aside-step-00000001-99-0123456789abcdef", "config.json");  // step 1 is there
  mkdir(folder_.File(".step-00000004.tmp-99-0123456789abcdef").c_str(), 0700);
  WriteBytes(folder_.File(".pando-probe.tmp-99-0123456789abcdef"), "x");
  EXPECT_EQ(NamesAfterPrepare(), std::vector<std::string>{"step-00000001"});
  EXPECT_EQ(notes_.size(), 5u);
}

TEST_F(Leftovers, OneThatNothingReplacedIsPutBack) {
  std::filesystem::rename(folder_.File("step-00000001"),
                          folder_.File(".aside-step-00000001-99-0123456789abcdef"));
  Leave(".step-00000001.tmp-99-0123456789abcdef", "model.safetensors");
  EXPECT_EQ(NamesAfterPrepare(), std::vector<std::string>{"step-00000001"});
  EXPECT_OK(CheckSample(folder_.File("step-00000001"), 1));
}

TEST_F(Leftovers, WhatIsNotRecognisedStays) {
  const std::vector<std::string> foreign = {
      ".step-00000002.tmp-99-0123456789abcde",    // no name of ours
      ".step-2.tmp-99-0123456789abcdef",          // no step
      ".step-00000002.tmp-99-0123456789abcdef0",  //
      ".trash-step-00000003",
      ".trash-99-0123456789abcdef",
      "notes"};
  for (const std::string& name : foreign) Leave(name, "model.safetensors");
  Leave(".step-00000005.tmp-99-0123456789abcdef", "my notes");  // a foreign file
  Leave(".step-00000006.tmp-99-0123456789abcdef", ".hidden");   //
  mkdir(folder_.File(".step-00000007.tmp-99-0123456789abcdef").c_str(), 0700);
  mkdir(folder_.File(".step-00000007.tmp-99-0123456789abcdef/sub.json").c_str(), 0700);
  std::filesystem::create_symlink("/tmp", folder_.File(".step-00000008.tmp-99-0123456789abcdef"));
  EXPECT_EQ(NamesAfterPrepare().size(), 1 + foreign.size() + 4);
  EXPECT_EQ(notes_.size(), 3u);
}

}  // namespace
}  // namespace pando
